package dependents

import (
	"slices"
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// An object has the metadata that decide which objects are deleted with which. There may be very many of them.
type object struct {
	in          *cluster.Resource
	uid         types.UID
	namespace   string
	container   string // the name of a Namespace or a CustomResourceDefinition, which has other objects in it
	owners      []owner
	terminating bool
}

// An owner is an owner reference.
type owner struct {
	uid  types.UID
	kind schema.GroupKind
}

// newObject copies the fields that are needed. Strings that many objects share are kept once.
func newObject(in *cluster.Resource, metadata *metav1.PartialObjectMetadata) *object {
	o := &object{
		in: in, uid: metadata.UID, namespace: unique.Make(metadata.Namespace).Value(),
		container: containerName(in, metadata.Name), terminating: metadata.DeletionTimestamp != nil,
	}
	if len(metadata.OwnerReferences) > 0 {
		o.owners = make([]owner, len(metadata.OwnerReferences))
	}
	for i, reference := range metadata.OwnerReferences {
		kind := schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind).GroupKind()
		o.owners[i] = owner{unique.Make(reference.UID).Value(), unique.Make(kind).Value()}
	}
	return o
}

func containerName(in *cluster.Resource, name string) string {
	if kinds.IsContainer(in.GroupKind()) {
		return name
	}
	return ""
}

// contains reports whether another object is in this one, and so is deleted with it.
func (o *object) contains(other *object) bool {
	if o.in.GroupKind() == kinds.Namespace {
		return other.namespace == o.container
	}
	resource, group, _ := strings.Cut(o.container, ".") // as definitions are named
	return other.in.Group == group && other.in.Resource == resource
}

// mayOwn reports whether another object may have this one as its owner: an owner is in the namespace of the
// dependent, or cluster-scoped.
func (o *object) mayOwn(other *object) bool {
	return o.namespace == "" || o.namespace == other.namespace
}

// A graph has all objects that were found, and their dependents by owner.
type graph struct {
	objects    map[types.UID]*object
	dependents map[types.UID][]*object
	listed     map[schema.GroupKind]bool // the kinds whose objects are all known; true if they are namespaced
}

// newGraph makes a graph of listings. An object that is served in several groups is in the listings of each, and
// counts as one of the first. The deleted objects are in the graph even if they can't be listed.
func newGraph(listings []listing, deleted []objectmeta.LiveMetadata) *graph {
	g := &graph{map[types.UID]*object{}, map[types.UID][]*object{}, map[schema.GroupKind]bool{}}
	for i := range listings {
		for _, object := range listings[i].objects {
			if g.objects[object.uid] == nil && object.uid != "" {
				g.objects[object.uid] = object
			}
		}
		g.listed[listings[i].in.GroupKind()] = listings[i].in.Namespaced
	}
	for i := range listings {
		if listings[i].err != nil {
			delete(g.listed, listings[i].in.GroupKind())
		}
	}
	for i := range deleted {
		if m := &deleted[i]; g.objects[m.UID] == nil {
			g.objects[m.UID] = &object{
				in:        &m.Resource,
				uid:       m.UID,
				namespace: m.ID.Namespace,
				container: containerName(&m.Resource, m.ID.Name),
			}
		}
	}
	for _, dependent := range g.objects {
		for _, owner := range dependent.owners {
			if found := g.objects[owner.uid]; found != nil && found.mayOwn(dependent) {
				g.dependents[owner.uid] = append(g.dependents[owner.uid], dependent)
			}
		}
	}
	return g
}

// goesWith returns the objects that are deleted with an object. Objects that own each other in a cycle stay, unless
// one of them is deleted: the garbage collector does the same.
func (g *graph) goesWith(first *object) []*object {
	gone := map[*object]bool{first: true}
	all := []*object{first}
	add := func(object *object) {
		if !gone[object] {
			gone[object] = true
			all = append(all, object)
		}
	}
	for i := 0; i < len(all); i++ { // all grows in the loop
		if all[i].container != "" {
			for _, object := range g.objects {
				if all[i].contains(object) {
					add(object)
				}
			}
		}
		for _, dependent := range g.dependents[all[i].uid] {
			if !slices.ContainsFunc(dependent.owners, func(owner owner) bool {
				return g.stays(owner, dependent, gone)
			}) {
				add(dependent)
			}
		}
	}
	return all[1:]
}

// stays reports whether an owner remains. An owner of a kind that could not be listed does.
func (g *graph) stays(owner owner, dependent *object, gone map[*object]bool) bool {
	found := g.objects[owner.uid]
	switch isNamespaced, isListed := g.listed[owner.kind]; {
	case found != nil && found.mayOwn(dependent):
		return !gone[found] && !found.terminating
	case found == nil && !isListed:
		return true
	case dependent.namespace == "": // the garbage collector can't look for an owner in a namespace
		return found != nil || isNamespaced
	default:
		return false
	}
}
