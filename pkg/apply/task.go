package apply

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/ownership"
	"github.com/runlevel/runlevel/pkg/payload"
)

// inNoNamespace is about an object that can't be anywhere.
var inNoNamespace = refusal{ResourceInvalid, "it is in no namespace: write metadata.namespace"}

// hasFinished is why a Job is kept as it is, which is no more.
const hasFinished = "it has finished before, and is not run again"

// do does what a manifest asks for, once.
func (r *run) do(m *payload.Manifest) (Change, error) {
	if m.IsTombstone() {
		return r.bury(m)
	}
	return r.put(m)
}

// put makes the object of a manifest what the manifest says.
func (r *run) put(m *payload.Manifest) (Change, error) {
	resource, err := r.place(m)
	if err != nil {
		return Change{}, err
	}
	head, isThere, err := r.head(resource, m.ID())
	if err != nil {
		return Change{}, err
	}
	o := &object{Manifest: m, resource: resource, head: head, isThere: isThere}
	change, err := r.putKnown(o)
	change.Version = o.version()
	return change, err
}

// place says where the object of a manifest is.
func (r *run) place(m *payload.Manifest) (cluster.Resource, error) {
	resource, err := r.find(m.GroupVersionKind())
	if err == nil && resource.Namespaced && m.Object().GetNamespace() == "" {
		return resource, inNoNamespace
	}
	return resource, err
}

// putKnown is put for an object that was looked at.
func (r *run) putKnown(o *object) (Change, error) {
	m := o.Manifest
	if err := r.refuseOwned(o.head); err != nil {
		return Change{}, err
	}
	r.readiness.Expect(m, o.resource)
	if r.isUntouched(m, o.head, o.isThere) {
		r.readiness.Assume(m, r.wasReady(m, o.head))
		return Change{Action: Unchanged, UID: o.head.UID}, nil
	}
	if m.GroupVersionKind().GroupKind() == kinds.Job && !o.isThere && r.options.Journal.hasFinished(m) {
		if isGone, err := r.isAbsent(o.resource, m.ID()); err != nil || isGone {
			return Change{Action: Kept, Message: hasFinished}, err
		}
	}
	if isCreateOnly(m) {
		if o.isThere && r.trusts(o.head) {
			r.readiness.Assume(m, r.wasReady(m, o.head))
			return Change{Action: Kept, UID: o.head.UID, Message: wasThere}, nil
		}
		return r.create(o)
	}
	return r.set(o)
}

// refuseOwned refuses to touch what another release has.
func (r *run) refuseOwned(head inventory.Head) error {
	if owner, isOthers := head.Owner(r.options.Release); isOthers {
		return refusal{ResourceConflict, "it is of release " + owner + ": only one release may have an object"}
	}
	return nil
}

// find says where the object is. Kinds that came up since the last look are looked for
// once more.
func (r *run) find(kind schema.GroupVersionKind) (cluster.Resource, error) {
	resource, err := r.cluster.Find(r.requests, kind)
	if errors.Is(err, cluster.ErrNotServed) && r.hasWritten(kind.Group) || errors.As(err, new(*cluster.UnknownKind)) {
		r.cluster.Refresh()
		return r.cluster.Find(r.requests, kind)
	}
	return resource, err
}

// head is what is known of an object from before. It is only asked for where it could not
// be listed.
func (r *run) head(resource cluster.Resource, id kinds.ID) (inventory.Head, bool, error) {
	if !resource.Namespaced {
		id.Namespace = "" // which manifests may say all the same
	}
	if head, found := r.before.Find(id); found || r.before.Covers(id) {
		return head, found, nil
	}
	return r.headNow(resource, id)
}

// headNow asks for an object.
func (r *run) headNow(resource cluster.Resource, id kinds.ID) (inventory.Head, bool, error) {
	object, err := r.cluster.Head(r.requests, resource, id.Namespace, id.Name)
	if apierrors.IsNotFound(err) {
		return inventory.Head{}, false, nil
	}
	if err != nil {
		return inventory.Head{}, false, err
	}
	return inventory.HeadOf(resource, object), true, nil
}

// isAbsent says whether an object is not there. Where all that we have applied is known,
// nobody is asked.
func (r *run) isAbsent(resource cluster.Resource, id kinds.ID) (bool, error) {
	if r.before.Covers(id) {
		return true, nil
	}
	_, err := r.cluster.Head(r.requests, resource, id.Namespace, id.Name)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// isCreateOnly says whether an object is only ever made. The value may be in any case, as
// upstream has it.
func isCreateOnly(m *payload.Manifest) bool {
	return strings.EqualFold(m.Object().GetAnnotations()[CreateOnlyAnnotation], "true")
}

// wasThere is why an object is kept that is only ever made.
const wasThere = "it is create-only, and was there"

// create makes an object, if it is not there. One that was there when the run began may
// have gone since, and another one may have come.
func (r *run) create(o *object) (Change, error) {
	draft := ownership.Draft(o.Object(), inventory.Label, r.options.Release)
	if !o.isThere {
		made, err := r.cluster.Create(r.requests, o.resource, draft)
		r.warn(o.Manifest, maskedWarnings(o.Manifest, made.Warnings))
		if err == nil {
			r.makeKnown(o, made.Object)
			r.settled(o, made.Object)
			return Change{Action: Created, UID: made.Object.GetUID()}, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return Change{}, err
		}
	}
	live, err := r.cluster.In(o.resource, draft.GetNamespace()).Get(r.requests, draft.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && o.isThere:
		o.isThere = false
		return r.create(o)
	case apierrors.IsNotFound(err):
		return Change{}, leaving{"it was in the way when it was to be made, and is gone: it can be made now"}
	case err != nil:
		return Change{}, err
	case live.GetDeletionTimestamp() != nil:
		return Change{}, r.leaving(o.Manifest, live.GetUID())
	}
	r.settled(o, live)
	return Change{Action: Kept, UID: live.GetUID(), Message: wasThere}, nil
}

// settled takes in an object as it is once it has been dealt with.
func (r *run) settled(o *object, now *unstructured.Unstructured) {
	o.now = now
	r.readiness.Applied(o.Manifest, now)
}
