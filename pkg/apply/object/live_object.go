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
	head      objectmeta.LiveMetadata // before the apply, if the object existed
	exists    bool
	isMade    bool                 // this run has created it, by a request whose answer was lost
	isPartial bool                 // fields that the cluster does not know were left out
	lost      []ownership.Conflict // fields that other managers had set to other values
	removed   []ownership.Conflict // fields of other managers that exclude fields of the manifest
	adopts    []string             // managers whose fields would be adopted; in previews only
	added     []any                // items that were added to a list shared with other managers
	sent      *unstructured.Unstructured
	now       *unstructured.Unstructured // after the apply
}

// version returns the resourceVersion after the apply.
func (o *liveObject) version() string {
	if o.now != nil {
		return o.now.GetResourceVersion()
	}
	return o.head.ResourceVersion
}

// text returns the inputs of an apply, for its fingerprint. The definition is one of them: when it
// changes, so does the result for custom resources, without a trace in them. The text is not known
// if the definition is not.
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

// wasReady reports whether an object was ready and has not been written since.
func (k *knowledge) wasReady(m *payload.Manifest, head objectmeta.LiveMetadata) bool {
	text, isKnown := k.text(m, head.Resource)
	return isKnown && k.fingerprints.CarryOverReady(k.known, head, text, k.standard())
}

// standard names the rules for readiness: the upstream standard has other rules for an install.
func (k *knowledge) standard() string {
	return fmt.Sprint(k.options.Standard, k.options.Standard == ready.Upstream && k.options.Mode == graph.Install)
}

// countsChanges reports whether the generation of a resource's objects counts every change of
// their content.
func (k *knowledge) countsChanges(resource cluster.Resource) bool {
	return kinds.CountsChanges(resource.GroupKind()) || k.isCustom(resource)
}

// trusts reports whether the metadata from before the run counts as the current state of an object.
func (k *knowledge) trusts(head objectmeta.LiveMetadata) bool {
	return !k.options.Full && k.before.Age() < k.options.LookCounts && head.Release == k.options.Release && head.IsApplied && !head.Terminating
}

// isCustom reports whether the objects of a resource are custom resources. Aggregated API servers
// need not follow the conventions for generations.
func (k *knowledge) isCustom(resource cluster.Resource) bool {
	isCustom, err := k.cluster.IsCustom(k.requests, resource)
	return err == nil && isCustom
}

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

// applied notes the result of an apply, and returns the change.
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

// applyFirst creates or applies an object. If another client has created it meanwhile, the fields
// of that tool are adopted first, so that the apply removes those that the release does not set.
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
		if !o.exists { // it is gone, or the conflict was about another object, such as a quota
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

// adopt takes over the fields of other tools before the first apply of an object.
func (a *Applier) adopt(o *liveObject) error {
	if !o.head.IsNeverApplied() || o.head.Terminating {
		return nil
	}
	now, adopted, err := ownership.Adopt(a.requests, a.cluster, o.resource, o.head.Object(), a.options.AdoptFrom)
	if apierrors.IsNotFound(err) { // it was just deleted, and the apply creates it
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

func (a *Applier) apply(o *liveObject, how cluster.ApplyMode) (cluster.WriteResult, error) {
	draft, err := a.draft(o)
	if err != nil {
		return cluster.WriteResult{}, err
	}
	return a.writer.apply(o, draft, how)
}

// draft returns the object that an apply sends.
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

// action returns what an apply has done. Began is the time before the apply, by the server's clock.
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
	// The object was written since it was read: by this apply, or by a controller that wrote its
	// status, for example. An apply that changes anything updates the time of our entry, which has
	// whole seconds: for a young entry, only the generation and the metadata show a change.
	if !before.Entry.Same(after.Entry) {
		return Configured
	}
	isSame := after.Generation != 0 && before.Generation == after.Generation && before.HasMetadataOf(o.Object()) && a.countsChanges(o.resource)
	if isSame || began.Sub(after.Entry.Since) > entryDoubt {
		return Unchanged
	}
	return Configured
}

// entryDoubt is the age from which the time of an entry shows whether this apply has updated it:
// the time has whole seconds, and the estimate of the server's clock may be two seconds off.
const entryDoubt = 4 * time.Second
