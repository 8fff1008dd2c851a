package object

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// inNoNamespace is the failure of a namespaced object whose manifest names no namespace.
var inNoNamespace = refusal{ResourceInvalid, "it is in no namespace: write metadata.namespace"}

// hasFinished is the message of a Job that has finished, and is gone.
const hasFinished = "it has finished before, and is not run again"

// Delete deletes the object of a tombstone, in an update, and waits for nothing.
func (a *Applier) Delete(m *payload.Manifest) (Change, error) { return a.deleter.Delete(m) }

// Apply applies the manifest of an object. The metadata from before the run counts for its first apply only.
func (a *Applier) Apply(m *payload.Manifest) (Change, error) {
	resource, err := a.place(m)
	if err != nil {
		return Change{}, err
	}
	head, exists, err := a.head(resource, m.ID())
	if err != nil {
		return Change{}, err
	}
	o := &liveObject{Manifest: m, resource: resource, head: head, exists: exists}
	change, err := a.putKnown(o)
	if err != nil {
		return Change{}, err
	}
	if kinds.Extends(m.GroupVersionKind().GroupKind()) && change.Action.HasChanged() {
		a.written.Store(servedGroup(m.Object()), time.Now())
	}
	if len(change.Lost) > 0 {
		a.logUnwritten(m.ID(), a.cluster.RecordEvent(a.requests, cluster.ObjectEvent{
			ID: m.ID(), UID: change.UID, Reason: "FieldsOverruled", IsWarning: true,
			Message: "release " + a.options.Release + " has other values, and has set again: " + LossesInWords(change.Lost),
		}))
	}
	change.Version = o.version()
	a.ForgetBefore(m)
	return change, nil
}

// ForgetBefore drops the metadata of an object from before the run, since the object has been written.
func (k *knowledge) ForgetBefore(m *payload.Manifest) { k.outdated.Store(m.ID(), true) }

// place returns the resource of a manifest's object.
func (k *knowledge) place(m *payload.Manifest) (cluster.Resource, error) {
	resource, err := k.find(m.GroupVersionKind())
	if err == nil && resource.Namespaced && m.Object().GetNamespace() == "" {
		return resource, inNoNamespace
	}
	return resource, err
}

// putKnown creates, applies or keeps an object whose metadata is known.
func (a *Applier) putKnown(o *liveObject) (Change, error) {
	f := a.gather(o, true)
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

// kept returns the change of an object that was not written.
func kept(what decision, head objectmeta.LiveMetadata) Change {
	switch what {
	case skip:
		return Change{Action: Unchanged, UID: head.UID}
	case keepDone:
		return Change{Action: Kept, Message: hasFinished}
	default:
		return Change{Action: Kept, UID: head.UID, Message: createOnlyExists}
	}
}

// otherOwner returns the other release that owns an object; "" if none does.
func (k *knowledge) otherOwner(head objectmeta.LiveMetadata) string {
	if owner, isOthers := head.OtherOwner(k.options.Release); isOthers {
		return owner
	}
	return ""
}

// refuseOwned returns an error if another release owns the object.
func (k *knowledge) refuseOwned(head objectmeta.LiveMetadata) error {
	if owner := k.otherOwner(head); owner != "" {
		return ownedBy(owner)
	}
	return nil
}

func ownedBy(owner string) error {
	return refusal{ResourceConflict, "it is of release " + owner + ": only one release may have an object"}
}

// find returns the resource of a kind. Discovery is repeated for a kind that may be new.
func (k *knowledge) find(kind schema.GroupVersionKind) (cluster.Resource, error) {
	resource, err := k.cluster.Find(k.requests, kind)
	if errors.Is(err, cluster.ErrNotServed) && k.hasWritten(kind.Group) || errors.As(err, new(*cluster.UnknownKind)) {
		k.cluster.Refresh()
		return k.cluster.Find(k.requests, kind)
	}
	return resource, err
}

// head returns the metadata of an object from before the run. It sends a request only if the object could not be listed,
// or has been written since.
func (k *knowledge) head(resource cluster.Resource, id kinds.ID) (objectmeta.LiveMetadata, bool, error) {
	if _, isOutdated := k.outdated.Load(id); isOutdated {
		return k.headNow(resource, id)
	}
	if !resource.Namespaced {
		id.Namespace = "" // manifests of cluster-scoped objects may have one
	}
	if head, found := k.before.Find(id); found || k.before.Covers(id) {
		return head, found, nil
	}
	return k.headNow(resource, id)
}

// headNow requests the metadata of an object.
func (k *knowledge) headNow(resource cluster.Resource, id kinds.ID) (objectmeta.LiveMetadata, bool, error) {
	object, err := k.cluster.GetMetadata(k.requests, resource, id.Namespace, id.Name)
	if apierrors.IsNotFound(err) {
		return objectmeta.LiveMetadata{}, false, nil
	}
	if err != nil {
		return objectmeta.LiveMetadata{}, false, err
	}
	return objectmeta.Of(resource, object), true, nil
}

// createOnlyExists is the message of a create-only object that is kept.
const createOnlyExists = "it is create-only, and was there"

// create creates a create-only object, if it does not exist. The object may have been created or deleted since the run
// began.
func (a *Applier) create(o *liveObject) (Change, error) {
	draft := ownership.Draft(o.Object(), objectmeta.ReleaseLabel, a.options.Release)
	if !o.exists {
		made, err := a.cluster.Create(a.requests, o.resource, draft)
		a.handler.Warned(o.Manifest, maskedWarnings(o.Manifest, made.Warnings))
		if err == nil {
			a.settled(o, made.Object)
			return Change{Action: Created, UID: made.Object.GetUID()}, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return Change{}, err
		}
	}
	live, err := a.cluster.In(o.resource, draft.GetNamespace()).Get(a.requests, draft.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && o.exists:
		o.exists = false
		return a.create(o)
	case apierrors.IsNotFound(err):
		return Change{}, terminating{"it was in the way when it was to be made, and is gone: it can be made now"}
	case err != nil:
		return Change{}, err
	case live.GetDeletionTimestamp() != nil:
		return Change{}, a.deleter.terminating(o.Manifest, live.GetUID())
	}
	if err := ownership.Disown(a.requests, a.cluster, o.resource, live); err != nil {
		return Change{}, err
	}
	a.settled(o, live)
	return Change{Action: Kept, UID: live.GetUID(), Message: createOnlyExists}, nil
}

// settled notes an object after its apply.
func (a *Applier) settled(o *liveObject, now *unstructured.Unstructured) {
	o.now = now
	a.handler.Readiness.Applied(o.Manifest, now)
}
