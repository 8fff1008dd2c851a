package object

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

// Apply does what a manifest asks for, once.
func (a *Applier) Apply(m *payload.Manifest) (Change, error) {
	if m.IsTombstone() {
		return a.bury(m)
	}
	return a.put(m)
}

// put makes the object of a manifest what the manifest says.
func (a *Applier) put(m *payload.Manifest) (Change, error) {
	resource, err := a.place(m)
	if err != nil {
		return Change{}, err
	}
	head, isThere, err := a.head(resource, m.ID())
	if err != nil {
		return Change{}, err
	}
	o := &target{Manifest: m, resource: resource, head: head, isThere: isThere}
	change, err := a.putKnown(o)
	change.Version = o.version()
	return change, err
}

// place says where the object of a manifest is.
func (k *knowledge) place(m *payload.Manifest) (cluster.Resource, error) {
	resource, err := k.find(m.GroupVersionKind())
	if err == nil && resource.Namespaced && m.Object().GetNamespace() == "" {
		return resource, inNoNamespace
	}
	return resource, err
}

// putKnown is put for an object that was looked at.
func (a *Applier) putKnown(o *target) (Change, error) {
	f, err := a.gather(o, true)
	if err != nil {
		return Change{}, err
	}
	what := decide(f)
	if what == refuse {
		return Change{}, ownedBy(f.owner)
	}
	a.handler.Readiness.Expect(o.Manifest, o.resource)
	switch what {
	case skip, keep:
		a.handler.Readiness.Assume(o.Manifest, a.wasReady(o.Manifest, o.head))
		return kept(what, o.head), nil
	case keepDone:
		return kept(what, o.head), nil
	case create:
		return a.create(o)
	default:
		return a.set(o)
	}
}

// kept is what came of an object that was not written.
func kept(what decision, head inventory.Head) Change {
	switch what {
	case skip:
		return Change{Action: Unchanged, UID: head.UID}
	case keepDone:
		return Change{Action: Kept, Message: hasFinished}
	default:
		return Change{Action: Kept, UID: head.UID, Message: wasThere}
	}
}

// otherOwner returns the other release that has an object; "" if none has.
func (k *knowledge) otherOwner(head inventory.Head) string {
	if owner, isOthers := head.Owner(k.options.Release); isOthers {
		return owner
	}
	return ""
}

// refuseOwned refuses to touch what another release has.
func (k *knowledge) refuseOwned(head inventory.Head) error {
	if owner := k.otherOwner(head); owner != "" {
		return ownedBy(owner)
	}
	return nil
}

func ownedBy(owner string) error {
	return refusal{ResourceConflict, "it is of release " + owner + ": only one release may have an object"}
}

// find says where the object is. Kinds that came up since the last look are looked for
// once more.
func (k *knowledge) find(kind schema.GroupVersionKind) (cluster.Resource, error) {
	resource, err := k.cluster.Find(k.requests, kind)
	if errors.Is(err, cluster.ErrNotServed) && k.hasWritten(kind.Group) || errors.As(err, new(*cluster.UnknownKind)) {
		k.cluster.Refresh()
		return k.cluster.Find(k.requests, kind)
	}
	return resource, err
}

// head is what is known of an object from before. It is only asked for where it could not
// be listed.
func (k *knowledge) head(resource cluster.Resource, id kinds.ID) (inventory.Head, bool, error) {
	if !resource.Namespaced {
		id.Namespace = "" // which manifests may say all the same
	}
	if head, found := k.before.Find(id); found || k.before.Covers(id) {
		return head, found, nil
	}
	return k.headNow(resource, id)
}

// headNow asks for an object.
func (k *knowledge) headNow(resource cluster.Resource, id kinds.ID) (inventory.Head, bool, error) {
	object, err := k.cluster.Head(k.requests, resource, id.Namespace, id.Name)
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
func (k *knowledge) isAbsent(resource cluster.Resource, id kinds.ID) (bool, error) {
	if k.before.Covers(id) {
		return true, nil
	}
	_, err := k.cluster.Head(k.requests, resource, id.Namespace, id.Name)
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
func (a *Applier) create(o *target) (Change, error) {
	draft := ownership.Draft(o.Object(), inventory.Label, a.options.Release)
	if !o.isThere {
		made, err := a.cluster.Create(a.requests, o.resource, draft)
		a.handler.Warned(o.Manifest, maskedWarnings(o.Manifest, made.Warnings))
		if err == nil {
			a.makeKnown(o, made.Object)
			a.settled(o, made.Object)
			return Change{Action: Created, UID: made.Object.GetUID()}, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return Change{}, err
		}
	}
	live, err := a.cluster.In(o.resource, draft.GetNamespace()).Get(a.requests, draft.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && o.isThere:
		o.isThere = false
		return a.create(o)
	case apierrors.IsNotFound(err):
		return Change{}, leaving{"it was in the way when it was to be made, and is gone: it can be made now"}
	case err != nil:
		return Change{}, err
	case live.GetDeletionTimestamp() != nil:
		return Change{}, a.leaving(o.Manifest, live.GetUID())
	}
	a.settled(o, live)
	return Change{Action: Kept, UID: live.GetUID(), Message: wasThere}, nil
}

// settled takes in an object as it is once it has been dealt with.
func (a *Applier) settled(o *target, now *unstructured.Unstructured) {
	o.now = now
	a.handler.Readiness.Applied(o.Manifest, now)
}
