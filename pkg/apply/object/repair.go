package object

import (
	"context"
	"errors"
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Repairer applies single objects of a payload again, while the release is kept in place. Goroutines may share
// it, but not for the same object.
type Repairer struct {
	applier *Applier
	close   context.CancelFunc
}

// NewRepairer returns a Repairer for a payload that was applied, or is being applied, with the same options: they
// share the fingerprints. When ctx ends, pending requests may still complete, unless the lock is lost.
func NewRepairer(ctx context.Context, c *cluster.Cluster, release *payload.Payload, options Options) *Repairer {
	requestCtx, cancel := RequestContext(ctx, options.Lock)
	options = options.WithDefaults()
	options.Manifests = release.Manifests
	a := New(requestCtx, c, &inventory.Inventory{}, options, Handler{
		Readiness: IgnoreReadiness, OnWarnings: func(*payload.Manifest, []string) {},
		OnAdopted: func(*payload.Manifest, []string) {},
	})
	a.isRepairing, a.scaling.validFor = true, time.Second
	a.scaling.find()
	return &Repairer{a, cancel}
}

// Learn reads the definition of a resource, so that IsUntouched sends no requests.
func (r *Repairer) Learn(resource cluster.Resource) {
	r.applier.definitions.versionOf(resource)
	r.applier.served.isCustom(resource)
}

// Close ends pending requests.
func (r *Repairer) Close() { r.close() }

// Place returns the resource of a manifest's object.
func (r *Repairer) Place(manifest *payload.Manifest) (cluster.Resource, error) {
	return r.applier.served.place(manifest)
}

// IsUntouched reports whether the release's fields of an object can't have changed since it was applied.
func (r *Repairer) IsUntouched(manifest *payload.Manifest, head objectmeta.LiveMetadata) bool {
	detector := r.applier.changes
	if !detector.isApplied(head) {
		return false
	}
	if manifest.IsCreateOnly() {
		_, isKnown := detector.definitions.versionOf(head.Resource)
		return isKnown
	}
	return detector.isUntouched(manifest, head, detector.options.Fingerprints)
}

// Redefine notes the present version of a definition, and reports whether it has changed: then
// fingerprints of its objects no longer count. A terminating definition has not changed yet.
func (r *Repairer) Redefine(definition objectmeta.LiveMetadata) bool {
	return !definition.Terminating && definition.ID.GroupKind() == kinds.CustomResourceDefinition &&
		r.applier.definitions.note(definition.ID, definition.Object())
}

// RepairResult is the result of a repair.
type RepairResult struct {
	Change                              // has an error if the repair failed
	Before, Now objectmeta.LiveMetadata // empty if the object did not exist, or does not
	IsLooked    bool                    // Before is known
}

// Repair applies the manifest of an object again. If known is nil, it requests the metadata of the object.
func (r *Repairer) Repair(manifest *payload.Manifest, known *objectmeta.LiveMetadata) (repaired RepairResult) {
	o, err := &liveObject{Manifest: manifest}, error(nil)
	if repaired.IsLooked, err = r.look(o, known); err == nil {
		repaired.Change, err = r.applier.reconcile(o)
	}
	if errors.Is(err, cluster.ErrNotServed) {
		r.applier.cluster.Refresh() // the next try may find the kind
	}
	repaired.Before = o.head
	if err != nil {
		repaired.Err = NewFailure(manifest, err)
		return repaired
	}
	repaired.Now = o.head
	if o.now != nil {
		repaired.Now = objectmeta.Of(o.resource, o.now)
		repaired.Lost = lostFields(o, repaired)
	}
	isSame := repaired.Before.UID == repaired.Now.UID && repaired.Before.Entry.Same(repaired.Now.Entry)
	if repaired.Action == Configured && isSame && len(repaired.Lost)+len(o.added) == 0 {
		repaired.Action = Unchanged // another client has written it, and none of our fields
	}
	return repaired
}

// look finds the object to repair, and its metadata if they are not known.
func (r *Repairer) look(o *liveObject, known *objectmeta.LiveMetadata) (isLooked bool, err error) {
	if o.resource, err = r.applier.served.place(o.Manifest); err != nil {
		return false, err
	}
	if known != nil {
		o.head, o.exists = *known, true
		return true, nil
	}
	o.head, o.exists, err = r.applier.metadata.get(o.resource, o.ID())
	return err == nil, err
}

// IsUnfinished reports whether a manifest defines a Job whose end was not recorded.
func (r *Repairer) IsUnfinished(manifest *payload.Manifest) bool {
	return manifest.GroupVersionKind().GroupKind() == kinds.Job && !r.applier.options.Journal.hasFinished(manifest)
}

// NoteFinished notes in the record that a Job has finished, if it has.
func (r *Repairer) NoteFinished(job *payload.Manifest) error {
	a := r.applier
	resource, err := a.served.place(job)
	if err != nil {
		return err
	}
	object, err := a.read(resource, job.ID())
	switch {
	case object == nil:
		return err
	case !ready.HasSucceeded(object) || object.GetLabels()[objectmeta.ReleaseLabel] != a.options.Release:
		return nil
	}
	return a.options.Journal.RememberJob(a.requestCtx, job, object.GetUID())
}

// lostFields returns the fields that other managers had set to other values, or, if the server has found no conflict,
// the fields that the release no longer owned.
func lostFields(o *liveObject, repaired RepairResult) []ownership.Conflict {
	before := repaired.Before.Object()
	if len(repaired.Lost) > 0 || before == nil || repaired.Before.UID != repaired.Now.UID {
		return repaired.Lost
	}
	return maskConflicts(o.Manifest,
		ownership.Regained(before.GetManagedFields(), repaired.Now.Object().GetManagedFields()))
}
