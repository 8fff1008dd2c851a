package inventory

import (
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
)

// An object is what decides on whether it goes with others, and others with it. There may
// be a great many of them.
type object struct {
	in          *cluster.Resource
	uid         types.UID
	namespace   string
	holds       string // its name, if it is of a kind that holds others: see contains
	owners      []owner
	terminating bool
}

// An owner is a reference to one.
type owner struct {
	uid  types.UID
	kind schema.GroupKind
}

// objectOf keeps what is needed. Text that many objects share is kept once.
func objectOf(in *cluster.Resource, head *metav1.PartialObjectMetadata) *object {
	kept := &object{
		in: in, uid: head.UID, namespace: unique.Make(head.Namespace).Value(),
		holds: holds(in, head.Name), terminating: head.DeletionTimestamp != nil,
	}
	if len(head.OwnerReferences) > 0 {
		kept.owners = make([]owner, len(head.OwnerReferences))
	}
	for i, reference := range head.OwnerReferences {
		kind := schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind).GroupKind()
		kept.owners[i] = owner{unique.Make(reference.UID).Value(), unique.Make(kind).Value()}
	}
	return kept
}

func holds(in *cluster.Resource, name string) string {
	if kind := in.GroupKind(); kind != kinds.Namespace && kind != kinds.CustomResourceDefinition {
		return ""
	}
	return name
}

// contains says whether another object is in this one, and so goes with it.
func (o *object) contains(other *object) bool {
	if o.in.GroupKind() == kinds.Namespace {
		return other.namespace == o.holds
	}
	resource, group, _ := strings.Cut(o.holds, ".") // as definitions are named
	return other.in.Group == group && other.in.Resource == resource
}

// mayOwn says whether another object may have this one as its owner: owners are looked for
// in the namespace of what they own, or in none.
func (o *object) mayOwn(other *object) bool {
	return o.namespace == "" || o.namespace == other.namespace
}

// A stock is the objects that were found.
type stock struct {
	objects    map[types.UID]*object
	dependents map[types.UID][]*object
	listed     map[schema.GroupKind]bool // whose objects are all known; whether they are in namespaces
}

// stockOf takes in what was found. An object that is served in several groups is found in
// each of them, and counts as of the first. What goes is there, even if it can't be listed.
func stockOf(listings []listing, going []Head) *stock {
	s := &stock{map[types.UID]*object{}, map[types.UID][]*object{}, map[schema.GroupKind]bool{}}
	for i := range listings {
		for _, object := range listings[i].objects {
			if s.objects[object.uid] == nil && object.uid != "" {
				s.objects[object.uid] = object
			}
		}
		s.listed[listings[i].in.GroupKind()] = listings[i].in.Namespaced
	}
	for i := range listings {
		if listings[i].err != nil {
			delete(s.listed, listings[i].in.GroupKind())
		}
	}
	for i := range going {
		if head := &going[i]; s.objects[head.UID] == nil {
			s.objects[head.UID] = &object{in: &head.Resource, uid: head.UID, namespace: head.ID.Namespace, holds: holds(&head.Resource, head.ID.Name)}
		}
	}
	for _, dependent := range s.objects {
		for _, owner := range dependent.owners {
			if found := s.objects[owner.uid]; found != nil && found.mayOwn(dependent) {
				s.dependents[owner.uid] = append(s.dependents[owner.uid], dependent)
			}
		}
	}
	return s
}

// with is what goes with an object. Objects that own each other in a circle stay, unless
// one of them is told to go: that is how the garbage collector has it.
func (s *stock) with(first *object) []*object {
	gone := map[*object]bool{first: true}
	all := []*object{first}
	take := func(object *object) {
		if !gone[object] {
			gone[object] = true
			all = append(all, object)
		}
	}
	for i := 0; i < len(all); i++ { // it grows
		if all[i].holds != "" {
			for _, object := range s.objects {
				if all[i].contains(object) {
					take(object)
				}
			}
		}
		for _, dependent := range s.dependents[all[i].uid] {
			if !s.isKept(dependent, gone) {
				take(dependent)
			}
		}
	}
	return all[1:]
}

// isKept says whether an object has an owner that stays.
func (s *stock) isKept(dependent *object, gone map[*object]bool) bool {
	for _, owner := range dependent.owners {
		if s.stays(owner, dependent, gone) {
			return true
		}
	}
	return false
}

// stays says whether an owner will still be there. One that nobody could look for will be.
func (s *stock) stays(owner owner, dependent *object, gone map[*object]bool) bool {
	found := s.objects[owner.uid]
	switch isNamespaced, isListed := s.listed[owner.kind]; {
	case found != nil && found.mayOwn(dependent):
		return !gone[found] && !found.terminating
	case found == nil && !isListed:
		return true
	case dependent.namespace == "": // one that is in a namespace can't be looked for
		return found != nil || isNamespaced
	default:
		return false
	}
}
