package object

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A liveObject is an object of the cluster with the manifest that is applied to it.
type liveObject struct {
	*payload.Manifest
	resource  cluster.Resource
	head      objectmeta.LiveMetadata // as it was before, if it was there
	exists    bool
	isMade    bool                 // by this run, in a request whose answer was lost
	isPartial bool                 // fields were left out that the cluster does not know
	lost      []ownership.Conflict // fields that others had set otherwise
	removed   []ownership.Conflict // fields that others had set, and that the manifest contradicts
	adopts    []string             // managers who would have no fields any more: of previews only
	added     []any                // to a list that others add to, beside the apply
	sent      *unstructured.Unstructured
	now       *unstructured.Unstructured // as it is once it has been dealt with
}

// version returns the resourceVersion of an object that was dealt with.
func (o *liveObject) version() string {
	if o.now != nil {
		return o.now.GetResourceVersion()
	}
	return o.head.ResourceVersion
}

// text returns what an object is applied from. Its definition is part of that: what the server
// makes of a custom resource changes with it, and leaves no trace in the object. Where the
// definition is not known, neither is the text.
func (k *knowledge) text(m *payload.Manifest, resource cluster.Resource) (text fingerprint.AppliedFrom, isKnown bool) {
	definition, isKnown := k.definitions.versionOf(resource)
	text = fingerprint.AppliedFrom{Sum: m.Sum(), Metadata: m.Object(), Note: definition}
	if k.scaling.has(m.ID()) {
		text.Note += " scaled"
	}
	return text, isKnown
}

// isUntouched reports whether the release's fields of an object can't have changed since it was applied from the same
// manifest.
func (k *knowledge) isUntouched(m *payload.Manifest, head objectmeta.LiveMetadata, exists bool) bool {
	if !exists || !k.trusts(head) {
		return false
	}
	text, isKnown := k.text(m, head.Resource)
	isUntouched := isKnown && k.fingerprints.CarryOver(k.known, head, text, func() bool {
		return k.countsChanges(head.Resource)
	})
	if isUntouched {
		k.fingerprints.AddApplied(head)
	}
	return isUntouched
}

// wasReady reports whether an object was ready, and was not written since.
func (k *knowledge) wasReady(m *payload.Manifest, head objectmeta.LiveMetadata) bool {
	text, isKnown := k.text(m, head.Resource)
	return isKnown && k.fingerprints.CarryOverReady(k.known, head, text, k.standard())
}

// standard returns what readiness depends on, beside the object: by upstream's, some of it does
// not matter in an install.
func (k *knowledge) standard() string {
	return fmt.Sprint(k.options.Standard, k.options.Standard == ready.Upstream && k.options.Mode == graph.Install)
}

// countsChanges reports whether the generation of a resource's objects counts each change of
// their bodies.
func (k *knowledge) countsChanges(resource cluster.Resource) bool {
	return kinds.CountsChanges(resource.GroupKind()) || k.isCustom(resource)
}

// trusts reports whether what was seen of an object before is its current state.
func (k *knowledge) trusts(head objectmeta.LiveMetadata) bool {
	return !k.options.Full && k.before.Age() < k.options.LookCounts && head.Release == k.options.Release && head.IsApplied && !head.Terminating
}

// isCustom reports whether the objects of a resource are custom resources. Those of other
// servers may do as they like.
func (k *knowledge) isCustom(resource cluster.Resource) bool {
	isCustom, err := k.cluster.IsCustom(k.requests, resource)
	return err == nil && isCustom
}

// set applies an object.
func (a *Applier) set(o *liveObject) (Change, error) {
	began := a.cluster.Now()
	applied, err := a.applyFirst(o)
	if fixed := immutableFields(err); len(fixed) > 0 {
		return a.recreate(o, fixed)
	}
	if err != nil {
		return Change{}, err
	}
	if applied.Object.GetDeletionTimestamp() != nil {
		return Change{}, a.deleter.terminating(o.Manifest, applied.Object.GetUID())
	}
	after := objectmeta.Of(o.resource, applied.Object)
	return a.applied(o, applied, after, a.action(o, applied, after, began)), nil
}

// applied takes in what came of an object.
func (a *Applier) applied(o *liveObject, applied cluster.WriteResult, head objectmeta.LiveMetadata, action Action) Change {
	a.settled(o, applied.Object)
	a.definitions.note(o.ID(), applied.Object)
	text, isKnown := a.text(o.Manifest, o.resource)
	a.fingerprints.AddApplied(head)
	isAsSent := !o.isPartial && head.HasMetadataOf(o.Object()) && len(mutated(applied.Object, o.sent)) == 0
	if isKnown && (isAsSent || a.isRepairing) {
		a.fingerprints.Add(head, text)
	}
	return Change{Action: action, UID: applied.Object.GetUID(), Lost: o.lost}
}

// applyFirst applies an object. One that is not known of is made; if it is there all the
// same, another client has made it, and the fields of its tool are adopted first: a field that
// the tool has set, and the release does not, is to go.
func (a *Applier) applyFirst(o *liveObject) (cluster.WriteResult, error) {
	if !o.exists {
		applied, refused := a.apply(o, cluster.CreateOnly|cluster.Force)
		if !apierrors.IsConflict(refused) && !apierrors.IsAlreadyExists(refused) {
			return applied, refused
		}
		var err error
		if o.head, o.exists, err = a.headNow(o.resource, o.ID()); err != nil {
			return cluster.WriteResult{}, err
		}
		if !o.exists { // it is gone, or what is counted with it was written, such as a quota
			return cluster.WriteResult{}, refused
		}
		if err := a.refuseOwned(o.head); err != nil {
			return cluster.WriteResult{}, err
		}
		o.isMade = o.head.IsOf(a.options.Release) && a.before.Covers(o.ID())
	}
	if err := a.adopt(o); err != nil {
		return cluster.WriteResult{}, err
	}
	return a.apply(o, cluster.NoForce)
}

// adopt makes the fields of other tools ours, before we apply an object for the first time.
func (a *Applier) adopt(o *liveObject) error {
	if !o.head.IsNeverApplied() || o.head.Terminating {
		return nil
	}
	now, adopted, err := ownership.Adopt(a.requests, a.cluster, o.resource, o.head.Object(), a.options.AdoptFrom)
	if apierrors.IsNotFound(err) { // it was just deleted, and the apply makes it
		o.head, o.exists = objectmeta.LiveMetadata{}, false
		return nil
	}
	if err != nil {
		return err
	}
	o.head = objectmeta.Of(o.resource, now)
	if len(adopted) > 0 {
		a.handler.Adopted(o.Manifest, adopted)
	}
	return nil
}

// apply applies an object.
func (a *Applier) apply(o *liveObject, how cluster.ApplyMode) (cluster.WriteResult, error) {
	draft, err := a.draft(o)
	if err != nil {
		return cluster.WriteResult{}, err
	}
	return a.writer.apply(o, draft, how)
}

// draft returns what an apply sends.
func (a *Applier) draft(o *liveObject) (*unstructured.Unstructured, error) {
	draft := ownership.Draft(o.Object(), objectmeta.ReleaseLabel, a.options.Release)
	var live metav1.Object
	if o.exists {
		live = o.head.Object()
	}
	isScaled, err := a.scaling.isScaled(o.Manifest, live)
	if err != nil || !isScaled {
		return draft, err
	}
	return draft, a.scaling.scale(o, draft)
}

// action returns what an apply has done that was begun at a time, by the server's clock.
func (a *Applier) action(o *liveObject, applied cluster.WriteResult, after objectmeta.LiveMetadata, began time.Time) Action {
	before := o.head
	switch {
	case applied.Created && o.exists: // when the run began
		return Recreated
	case applied.Created || o.isMade:
		return Created
	}
	if !o.exists || before.UID != after.UID || len(o.added) > 0 {
		return Configured
	}
	if before.ResourceVersion == after.ResourceVersion {
		return Unchanged
	}
	// It was written since the look: by this apply, or its status by a controller, for example. An
	// apply that changes anything renews our entry, to the second: where the entry was that
	// young already, only the generation and the metadata may show it.
	if !before.Entry.Same(after.Entry) {
		return Configured
	}
	isSame := after.Generation != 0 && before.Generation == after.Generation && before.HasMetadataOf(o.Object()) && a.countsChanges(o.resource)
	if isSame || began.Sub(after.Entry.Since) > entryDoubt {
		return Unchanged
	}
	return Configured
}

// entryDoubt is how old an entry must be to show whether it was renewed: it has whole
// seconds, and what we know of the server's clock may be two seconds off.
const entryDoubt = 4 * time.Second
