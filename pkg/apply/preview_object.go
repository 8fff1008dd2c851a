package apply

import (
	"errors"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/ownership"
	"github.com/runlevel/runlevel/pkg/payload"
)

// object says what would come of an object.
func (p *preview) object(m *payload.Manifest) (Change, error) {
	resource, err := p.find(m.GroupVersionKind())
	if errors.Is(err, cluster.ErrNotServed) {
		return p.withoutKind(m, err)
	}
	if err != nil {
		return Change{}, err
	}
	if resource.Namespaced && m.Object().GetNamespace() == "" {
		return Change{}, inNoNamespace
	}
	head, isThere, err := p.head(resource, m.ID())
	if err != nil {
		return Change{}, err
	}
	if err := p.refuseOwned(head); err != nil {
		return Change{}, err
	}
	if p.isUntouched(m, head, isThere) {
		return Change{Action: Unchanged, UID: head.UID}, nil
	}
	if m.GroupVersionKind().GroupKind() == jobKind && !isThere && p.options.Journal.hasFinished(m) {
		if isGone, err := p.isAbsent(resource, m.ID()); err != nil || isGone {
			return Change{Action: Kept, Message: hasFinished}, err
		}
	}
	live, err := p.cluster.In(resource, m.Object().GetNamespace()).Get(p.requests, m.Object().GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return p.try(&object{Manifest: m, resource: resource}, nil)
	case err != nil:
		return Change{}, err
	}
	o := &object{Manifest: m, resource: resource, head: inventory.HeadOf(resource, live), isThere: true}
	if err := p.refuseOwned(o.head); err != nil { // which may have no label that can be listed
		return Change{}, err
	}
	switch {
	case o.head.Terminating:
		return Change{Action: NotChecked, UID: o.head.UID, Message: p.leaving(m, o.head.UID).Error()}, nil
	case isCreateOnly(m):
		return Change{Action: Kept, UID: o.head.UID, Message: wasThere}, nil
	}
	return p.try(o, live)
}

// try asks the server what would become of an object.
func (p *preview) try(o *object, live *unstructured.Unstructured) (Change, error) {
	how := cluster.Dry
	if live == nil {
		how |= cluster.Forced
	}
	applied, err := p.apply(o, how)
	if err != nil {
		return p.refused(o, live, err)
	}
	change := Change{UID: o.head.UID, Adopted: o.adopted, Lost: o.lost, Look: &Look{Live: live, Would: applied.Object}}
	if live != nil && o.head.IsNew() {
		if change.Look.Would, change.Adopted, err = p.adopted(o, live, applied.Object); err != nil {
			return p.refused(o, live, err)
		}
	}
	switch {
	case live == nil:
		change.Action = Created
	case isSame(live, change.Look.Would):
		change.Action, change.Look = Unchanged, nil
	default:
		change.Action = Configured
	}
	return change, nil
}

// adopted is what an object would be once the fields of other tools have been taken over.
func (p *preview) adopted(o *object, live, would *unstructured.Unstructured) (*unstructured.Unstructured, []string, error) {
	managers := ownership.Adoptable(live, p.options.AdoptFrom)
	left := ownership.Leave(would, live, p.options.AdoptFrom)
	if len(left) == 0 {
		return would, managers, nil
	}
	settled, _, err := ownership.Settle(p.requests, p.cluster, o.resource, would, left)
	return settled, managers, err
}

// isSame says whether two states of an object differ in nothing but what the server counts.
func isSame(a, b *unstructured.Unstructured) bool {
	return reflect.DeepEqual(withoutCounts(a), withoutCounts(b))
}

// withoutCounts is an object without what each write changes, or a dry run makes up.
func withoutCounts(object *unstructured.Unstructured) map[string]any {
	lean := object.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"} {
		unstructured.RemoveNestedField(lean.Object, "metadata", field)
	}
	return lean.Object
}

// refused says what it means that the server does not take an object.
func (p *preview) refused(o *object, live *unstructured.Unstructured, err error) (Change, error) {
	if fixed := immutableFields(err); len(fixed) > 0 && live != nil {
		if err := mayRecreate(o.resource, o.Manifest, fixed); err != nil {
			return Change{}, err
		}
		return Change{Action: Recreated, UID: o.head.UID, Message: cannotChange(fixed), Look: p.asSaid(o.Manifest, live)}, nil
	}
	why, isMet := p.notYet(o.Manifest, err)
	if !isMet {
		return Change{}, err
	}
	if err := p.holdAgainst(o.Manifest); err != nil {
		return Change{}, err
	}
	change := Change{Action: NotChecked, UID: o.head.UID, Message: why, Look: p.asSaid(o.Manifest, live)}
	if live == nil {
		change.Action = Created
	}
	change.Look.Unchecked = why
	return change, nil
}

// withoutKind is about an object of a kind that is not served.
func (p *preview) withoutKind(m *payload.Manifest, err error) (Change, error) {
	why, isMet := p.kindComes(m)
	if !isMet {
		return Change{}, err
	}
	if err := p.holdAgainst(m); err != nil {
		return Change{}, err
	}
	look := p.asSaid(m, nil)
	look.Unchecked = why
	return Change{Action: Created, Message: why, Look: look}, nil
}
