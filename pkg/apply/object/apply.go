package object

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// This file is the path of an object: step, look, decide, create, update or recreate, and note the result.

// Messages of objects that are not written.
const (
	hasFinished      = "it has already finished, and does not run again"
	createOnlyExists = "it is create-only, and exists already"
)

// inNoNamespace is the failure of a namespaced object whose manifest names no namespace.
var inNoNamespace = refusal{ResourceInvalid, "the manifest has no namespace: set metadata.namespace"}

// A manifestStep applies the manifest of an object, or deletes the object of a tombstone.
type manifestStep struct {
	StepBase
	applier  *Applier
	manifest *payload.Manifest
}

// NewStep returns the step of a manifest.
func (a *Applier) NewStep(m *payload.Manifest, needs []int) WalkStep {
	return manifestStep{StepBase{StepOf(m), needs}, a, m}
}

func (s manifestStep) Do(context.Context) TryResult {
	do := s.applier.Apply
	if s.manifest.IsTombstone() {
		do = s.applier.deleter.delete
	}
	change, err := do(s.manifest)
	return s.applier.Result(s.manifest, change, err)
}

func (s manifestStep) Preview(p *Previewer) (Change, error) { return p.Preview(s.manifest) }

// Result returns the result of an action on a manifest.
func (a *Applier) Result(m *payload.Manifest, change Change, err error) TryResult {
	change.StepID = StepOf(m)
	if err == nil {
		return TryResult{Change: change}
	}
	change.Action, change.Err = Failed, NewFailure(m, err)
	return TryResult{Change: change, IsRetryable: a.IsRetryable(m, err), Pause: WantedPause(err)}
}

// A liveObject is an object of the cluster with its manifest.
type liveObject struct {
	*payload.Manifest
	resource     cluster.Resource
	live         *unstructured.Unstructured // before the apply; read by previews only
	head         objectmeta.LiveMetadata    // before the apply, if the object existed
	exists       bool
	isMade       bool                 // this run has created it, by a request whose answer was lost
	isPartial    bool                 // fields that the cluster does not know were left out
	keepsUnknown bool                 // such fields may not be left out: a coming definition has them
	lost         []ownership.Conflict // fields that other managers had set to other values
	removed      []ownership.Conflict // fields of other managers that exclude fields of the manifest
	foreign      []ownership.Conflict // fields of other managers that were removed on request
	adopts       []string             // managers whose fields would be adopted; in previews only
	added        []any                // items that were added to a list shared with other managers
	sent         *unstructured.Unstructured
	mutated      []string                   // fields that the answer to sent lacks, or has with other values
	now          *unstructured.Unstructured // after the apply
}

// version returns the resourceVersion after the apply.
func (o *liveObject) version() string {
	if o.now != nil {
		return o.now.GetResourceVersion()
	}
	return o.head.ResourceVersion
}

// Apply applies the manifest of an object. The metadata from before the run counts for its first apply only.
func (a *Applier) Apply(m *payload.Manifest) (Change, error) {
	o, err := a.look(m)
	if err != nil {
		return Change{}, err
	}
	change, err := a.reconcile(o)
	if err != nil {
		return Change{}, err
	}
	if change.Action.HasChanged() {
		a.served.noteWritten(m)
	}
	if len(change.Lost) > 0 {
		a.recordEvent(cluster.ObjectEvent{
			ID: m.ID(), UID: change.UID, Reason: "FieldsOverruled", IsWarning: true,
			Message: "release " + a.options.Release + " has other values, and has set again: " +
				LossesInWords(change.Lost),
		})
	}
	change.Version = o.version()
	a.metadata.forget(m.ID())
	return change, nil
}

// look returns the object of a manifest, with the metadata that it had before the run, as long as they count.
func (a *Applier) look(m *payload.Manifest) (o *liveObject, err error) {
	o = &liveObject{Manifest: m}
	if o.resource, err = a.served.place(m); err != nil {
		return o, err
	}
	o.head, o.exists, err = a.metadata.find(o.resource, m.ID())
	return o, err
}

// readLive reads an object with its metadata.
func (a *Applier) readLive(o *liveObject) (err error) {
	if o.live, err = a.read(o.resource, o.ID()); o.live != nil {
		o.head, o.exists = objectmeta.Of(o.resource, o.live), true
	}
	return err
}

// reconcile creates, updates or leaves an object whose metadata is known; in a preview, it finds out which.
func (a *Applier) reconcile(o *liveObject) (Change, error) {
	f := a.gatherFacts(o)
	what := decide(f)
	if what == refuse {
		return Change{}, ownedBy(f.owner)
	}
	a.handler.Readiness.Expect(o.Manifest, o.resource)
	switch {
	case what == skip || what == keep:
		if what == skip {
			a.options.Fingerprints.AddApplied(o.head)
		}
		a.handler.Readiness.Assume(o.Manifest, a.changes.wasReady(o.Manifest, o.head))
		return unwrittenChange(what, o.head), nil
	case what == keepDone:
		return unwrittenChange(what, o.head), nil
	case a.previewer != nil:
		return a.previewer.compareLive(o)
	default: // create, set
		return a.update(o)
	}
}

// gatherFacts returns the facts about an object. An object is always applied if its definition is about to change.
func (a *Applier) gatherFacts(o *liveObject) facts {
	if owner, isOthers := o.head.OtherOwner(a.options.Release); isOthers {
		return facts{owner: owner}
	}
	isTrusted := a.changes.trusts(o.head)
	mayDiffer := a.definitionOf(o.Manifest).isChanged() || a.findsOthers && o.head.HasOthers
	isComparable := o.exists && isTrusted && !mayDiffer
	isJob := o.GroupVersionKind().GroupKind() == kinds.Job
	return facts{
		exists:       o.exists,
		isTrusted:    isTrusted,
		isUntouched:  isComparable && a.changes.isUntouched(o.Manifest, o.head, a.changes.recorded),
		isCreateOnly: o.Manifest.IsCreateOnly(),
		hasFinished:  !o.exists && isJob && a.options.Journal.hasFinished(o.Manifest),
	}
}

// unwrittenChange returns the change of an object that was not written.
func unwrittenChange(what decision, head objectmeta.LiveMetadata) Change {
	switch what {
	case skip:
		return Change{Action: Unchanged, UID: head.UID}
	case keepDone:
		return Change{Action: Kept, Message: hasFinished}
	default:
		return Change{Action: Kept, UID: head.UID, Message: createOnlyExists}
	}
}

// createOnce creates a create-only object, if it does not exist. The object may have been created or deleted since the
// run began.
func (a *Applier) createOnce(o *liveObject) (Change, error) {
	if !o.exists {
		made, err := a.create(o, cluster.NoForce)
		if err == nil {
			a.observe(o, made)
			return Change{Action: Created, UID: made.GetUID()}, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return Change{}, err
		}
	}
	live, err := a.read(o.resource, o.ID())
	switch {
	case err != nil:
		return Change{}, err
	case live == nil && o.exists:
		o.exists = false
		return a.createOnce(o)
	case live == nil:
		return Change{}, terminatingError{"an object of the same name was deleted meanwhile: it can be created now"}
	case live.GetDeletionTimestamp() != nil:
		return Change{}, a.deleter.terminatingFailure(o.Manifest, live.GetUID())
	}
	if err := ownership.Disown(a.requestCtx, a.cluster, o.resource, live); err != nil {
		return Change{}, err
	}
	a.observe(o, live)
	return Change{Action: Kept, UID: live.GetUID(), Message: createOnlyExists}, nil
}

// create creates an object of a create-only manifest.
func (a *Applier) create(o *liveObject, how cluster.ApplyMode) (*unstructured.Unstructured, error) {
	made, err := a.cluster.Create(a.requestCtx, o.resource, a.desired(o.Manifest), how)
	a.handler.OnWarnings(o.Manifest, maskWarnings(o.Manifest, made.Warnings))
	return made.Object, err
}

// update creates or applies an object. If another client has created it meanwhile, it is applied as an object that was
// there.
func (a *Applier) update(o *liveObject) (Change, error) {
	if o.Manifest.IsCreateOnly() {
		return a.createOnce(o)
	}
	began, how := a.cluster.Now(), cluster.CreateOnly|cluster.Force
	if o.exists {
		how = cluster.NoForce
		if err := a.takeForeign(o); err != nil {
			return Change{}, err
		}
		if err := a.adopt(o); err != nil {
			return Change{}, err
		}
	}
	draft, err := a.draft(o)
	if err != nil {
		return Change{}, err
	}
	applied, err := a.send(o, draft, how)
	if how != cluster.NoForce && (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)) {
		if err := a.findCreated(o, err); err != nil {
			return Change{}, err
		}
		return a.update(o)
	}
	if fixed := immutableFields(err); len(fixed) > 0 {
		return a.recreate(o, fixed)
	}
	if err != nil {
		return Change{}, err
	}
	if applied.Object.GetDeletionTimestamp() != nil {
		return Change{}, a.deleter.terminatingFailure(o.Manifest, applied.Object.GetUID())
	}
	after := objectmeta.Of(o.resource, applied.Object)
	return a.noteApplied(o, applied, after, a.actionOf(o, applied, after, began)), nil
}

// findCreated looks again at an object that could not be created because it exists. It returns the refusal if the
// object no longer exists, or if the conflict was about another object, such as a quota.
func (a *Applier) findCreated(o *liveObject, refused error) (err error) {
	if o.head, o.exists, err = a.metadata.get(o.resource, o.ID()); err != nil {
		return err
	}
	if !o.exists {
		return refused
	}
	if err := refuseOwned(o.head, a.options.Release); err != nil {
		return err
	}
	o.isMade = o.head.IsOf(a.options.Release) && a.before.Covers(o.ID())
	return nil
}

// adopt takes over the fields of other tools before the first apply of an object, so that the apply removes those that
// the release does not set.
func (a *Applier) adopt(o *liveObject) error {
	if !o.head.IsNeverApplied() || o.head.Terminating {
		return nil
	}
	now, adopted, err := ownership.Adopt(a.requestCtx, a.cluster, o.resource, o.head.Object(), a.options.AdoptFrom)
	if apierrors.IsNotFound(err) { // it was just deleted, and the apply creates it
		o.head, o.exists = objectmeta.LiveMetadata{}, false
		return nil
	}
	if err != nil {
		return err
	}
	o.head = objectmeta.Of(o.resource, now)
	if len(adopted) > 0 {
		a.handler.OnAdopted(o.Manifest, adopted)
	}
	return nil
}

// takeForeign takes over the fields of other managers that a user wants removed, so that the apply removes them.
func (a *Applier) takeForeign(o *liveObject) error {
	if a.options.RemovesForeign == nil || !o.head.HasOthers || o.head.Terminating {
		return nil
	}
	live, err := a.read(o.resource, o.ID())
	if live == nil {
		return err
	}
	if err := refuseOwned(objectmeta.Of(o.resource, live), a.options.Release); err != nil {
		return err
	}
	now, lost, err := ownership.TakeForeign(a.requestCtx, a.cluster, o.resource, live, o.removesForeign(a.options))
	if err != nil || now == nil {
		return err
	}
	o.head, o.foreign = objectmeta.Of(o.resource, now), maskConflicts(o.Manifest, lost)
	return nil
}

// removesForeign returns a function that reports whether a manager's foreign fields of the object are removed.
func (o *liveObject) removesForeign(options Options) func(manager string) bool {
	return func(manager string) bool { return options.RemovesForeign(o.ID(), manager) }
}

// draft returns the object that an apply sends.
func (a *Applier) draft(o *liveObject) (*unstructured.Unstructured, error) {
	draft := a.desired(o.Manifest)
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

// observe notes an object after its apply.
func (a *Applier) observe(o *liveObject, now *unstructured.Unstructured) {
	o.now = now
	a.handler.Readiness.NoteApplied(o.Manifest, now)
}

// noteApplied notes the result of an apply, and returns the change.
func (a *Applier) noteApplied(o *liveObject, applied cluster.WriteResult, head objectmeta.LiveMetadata,
	action Action) Change {
	a.observe(o, applied.Object)
	a.definitions.note(o.ID(), applied.Object)
	inputs, isKnown := a.changes.inputs(o.Manifest, o.resource)
	a.options.Fingerprints.AddApplied(head)
	isAsSent := !o.isPartial && head.HasMetadataOf(o.Object()) && len(o.mutated) == 0
	if isKnown && (isAsSent || a.isRepairing) {
		a.options.Fingerprints.Add(head, inputs)
	}
	return Change{Action: action, UID: applied.Object.GetUID(), Lost: o.lost}
}

// refuseOwned returns an error if another release owns an object.
func refuseOwned(head objectmeta.LiveMetadata, release string) error {
	if owner, isOthers := head.OtherOwner(release); isOthers {
		return ownedBy(owner)
	}
	return nil
}

func ownedBy(owner string) error {
	return refusal{ResourceConflict, "already owned by release " + owner}
}
