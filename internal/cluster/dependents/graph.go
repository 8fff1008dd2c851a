package dependents

import (
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// An object contains the metadata that decide which objects are deleted with which. A graph may have many objects.
type object struct {
	in          *cluster.Resource
	uid         types.UID
	namespace   string
	name        string
	owners      []owner
	terminating bool
	isImplicit  bool // Kubernetes creates it in every namespace
}

// An owner is an owner reference.
type owner struct {
	uid  types.UID
	kind schema.GroupKind
}

// newObject copies the fields that are needed. Strings that many objects share are stored once.
func newObject(resource *cluster.Resource, metadata *metav1.PartialObjectMetadata) *object {
	o := &object{
		in: resource, uid: metadata.UID, namespace: unique.Make(metadata.Namespace).Value(), name: metadata.Name,
		terminating: metadata.DeletionTimestamp != nil, isImplicit: isImplicit(resource.IDOf(metadata), metadata),
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

// objectOf returns the object of metadata that were read before.
func objectOf(metadata *objectmeta.LiveMetadata) *object {
	return &object{
		in: &metadata.Resource, uid: metadata.UID, namespace: metadata.ID.Namespace, name: metadata.ID.Name,
		terminating: metadata.Terminating,
	}
}

// id returns the ID of the object.
func (o *object) id() kinds.ID {
	return kinds.NewID(o.in.GroupKind(), o.namespace, o.name)
}

// contains reports whether another object is in this Namespace or of this definition, and so is deleted with it.
func (o *object) contains(other *object) bool {
	return o.containsKind(other.in) && (o.in.GroupKind() != kinds.Namespace || other.namespace == o.name)
}

// containsKind reports whether this Namespace may contain objects of a kind, or this definition defines the kind.
func (o *object) containsKind(resource *cluster.Resource) bool {
	switch o.in.GroupKind() {
	case kinds.Namespace:
		return resource.Namespaced
	case kinds.CustomResourceDefinition:
		return resource.GroupResource().String() == o.name // names of definitions have this format
	default:
		return false
	}
}

// mayOwn reports whether another object may have this one as its owner: an owner is in the namespace of the
// dependent, or cluster-scoped.
func (o *object) mayOwn(other *object) bool {
	return o.namespace == "" || o.namespace == other.namespace
}

// A scope is a kind in a namespace, or everywhere.
type scope struct {
	kind      schema.GroupKind
	namespace string
}

// A graph contains all objects that were found, and their dependents by owner.
type graph struct {
	objects    map[types.UID]*object
	dependents map[types.UID][]*object
	listed     map[scope]bool // the scopes whose objects are all known; true if the kind is namespaced
}

// newGraph returns the graph of listings. An object that several groups serve is in the listing of each group, and
// counts only in the first listing. The deleted objects are in the graph even if they can't be listed.
func newGraph(listings []listing, deleted []objectmeta.LiveMetadata) *graph {
	g := &graph{map[types.UID]*object{}, map[types.UID][]*object{}, map[scope]bool{}}
	for _, l := range listings {
		for _, object := range l.objects {
			if g.objects[object.uid] == nil && object.uid != "" {
				g.objects[object.uid] = object
			}
		}
		if l.err == nil {
			g.listed[scope{l.in.GroupKind(), l.namespace}] = l.in.Namespaced
		}
	}
	for i := range deleted {
		if metadata := &deleted[i]; g.objects[metadata.UID] == nil {
			g.objects[metadata.UID] = objectOf(metadata)
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

// deletedWith returns the objects that are deleted with an object. Objects that own each other in a cycle stay, unless
// one object of the cycle is deleted: the garbage collector does the same.
func (g *graph) deletedWith(first *object) []*object {
	deleted := map[*object]bool{first: true}
	all := []*object{first}
	add := func(object *object) {
		if !deleted[object] {
			deleted[object] = true
			all = append(all, object)
		}
	}
	for i := 0; i < len(all); i++ { // all grows in the loop
		if kinds.IsContainer(all[i].in.GroupKind()) {
			for _, object := range g.objects {
				if all[i].contains(object) {
					add(object)
				}
			}
		}
		for _, dependent := range g.dependents[all[i].uid] {
			if !g.isOwned(dependent, deleted) {
				add(dependent)
			}
		}
	}
	return all[1:]
}

// collect adds to deleted objects those that the garbage collector deletes: they have owners, of which none remains.
func (g *graph) collect(deleted map[*object]bool) {
	for isChanged := true; isChanged; {
		isChanged = false
		for _, object := range g.objects {
			if len(object.owners) > 0 && !deleted[object] && !g.isOwned(object, deleted) {
				deleted[object], isChanged = true, true
			}
		}
	}
}

// isOwned reports whether an owner of an object remains.
func (g *graph) isOwned(object *object, deleted map[*object]bool) bool {
	return slices.ContainsFunc(object.owners, func(owner owner) bool { return g.remains(owner, object, deleted) })
}

// remains reports whether an owner remains. An owner of a kind that could not be listed does.
func (g *graph) remains(owner owner, dependent *object, deleted map[*object]bool) bool {
	found := g.objects[owner.uid]
	isNamespaced, isListed := g.listed[scope{owner.kind, metav1.NamespaceAll}]
	if !isListed {
		isNamespaced, isListed = g.listed[scope{owner.kind, dependent.namespace}]
	}
	switch {
	case found != nil && found.mayOwn(dependent):
		return !deleted[found] && !found.terminating
	case found == nil && !isListed:
		return true
	case dependent.namespace == "": // the garbage collector can't look for an owner in a namespace
		return found != nil || isNamespaced
	default:
		return false
	}
}
