package rehearse

import (
	"context"
	"fmt"
	"slices"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// update updates the old release to the new one, or installs that, and reports what it has shown.
func (r *rehearsal) update(ctx context.Context, before, after *payload.Payload) *appliedStage {
	mode := graph.Update
	if before == nil && r.From == nil {
		mode = graph.Install
	}
	r.programs.runs(after)
	pods := r.watchPods(ctx)
	a := r.stage(ctx, lint.InPayload, after, r.options(mode))
	pods.stop()
	if a.Report == nil || ctx.Err() != nil {
		return a
	}
	r.reportGate(a)
	r.reportWarnings(a)
	r.reportChanges(a)
	if mode == graph.Update {
		r.reportOrphans(a)
		pods.report(ctx, r, before, after)
	}
	return a
}

// dryRun asks the API server about manifests that are not applied.
func (r *rehearsal) dryRun(ctx context.Context, manifests []*payload.Manifest) {
	for _, m := range manifests {
		in, err := r.cluster.Find(ctx, m.GroupVersionKind())
		if err == nil {
			_, err = r.cluster.Apply(ctx, in, m.Object(), cluster.Force|cluster.DryRun)
		}
		if err != nil && ctx.Err() == nil {
			for _, refusal := range refusalsOf(nil, m, object.NewFailure(m, err)) {
				r.found.about(m, lint.RehearsalObservation{
					Rule:    lint.RehearsalRefused,
					Field:   refusal.Path,
					Message: fields.Refuses + refusal.Message,
				})
			}
		}
	}
}

// notOfCluster are the checks of the gate that are about what the rehearsal itself has made, or that an object's
// failure shows better.
var notOfCluster = []string{
	precondition.RecordElsewhere, precondition.ApplyRunning, precondition.UnservedKinds, precondition.NoNamespace,
	precondition.MissingRights,
	precondition.ForeignObject, precondition.AdminAck, precondition.StoredVersions,
}

// reportGate reports what the gate would have blocked.
func (r *rehearsal) reportGate(a *appliedStage) {
	for _, found := range a.Findings {
		if found.Severity != precondition.Blocks || slices.Contains(notOfCluster, found.Check) {
			continue
		}
		seen := lint.RehearsalObservation{
			Rule:    lint.RehearsalGate,
			Path:    found.File,
			Message: found.Check + ": " + found.Message,
		}
		if found.Object != nil {
			seen.Object = found.Object.String()
			if m := a.manifest(place{found.File, *found.Object}); m != nil {
				seen.Line = m.Line
			}
		}
		r.found.add(seen)
	}
}

// reportWarnings reports the warnings of the API server.
func (r *rehearsal) reportWarnings(a *appliedStage) {
	for _, warning := range a.Report.Warnings {
		for _, id := range warning.Objects {
			if m := a.manifest(place{id.Path, id.ID}); m != nil {
				r.found.about(m, lint.RehearsalObservation{
					Rule:    lint.RehearsalWarned,
					In:      a.in,
					Field:   fieldIn(m, warning.Text),
					Message: fmt.Sprintf("the API server warns: %s", printable.Line(warning.Text)),
				})
			}
		}
	}
}

// reportChanges reports what was applied only after another try, and whose fields were overwritten.
func (r *rehearsal) reportChanges(a *appliedStage) {
	for _, change := range a.Report.Changes {
		m := a.manifest(place{change.Path, change.ID})
		if m == nil || change.Hook != "" {
			continue
		}
		why, wasRetried := a.retried[placeOf(m)]
		if wasRetried && change.Err == nil && a.Mode == graph.Update && !isDelete(change) {
			r.found.about(m, lint.RehearsalObservation{
				Rule:    lint.RehearsalRetried,
				In:      a.in,
				Message: fmt.Sprintf("it was refused at first, and applied at a later try: %s", why),
			})
		}
		if len(change.Lost) > 0 {
			r.found.about(m, lint.RehearsalObservation{
				Rule:    lint.RehearsalOverwritten,
				In:      a.in,
				Message: fmt.Sprintf("it overwrites what others have set: %s", object.LossesInWords(change.Lost)),
			})
		}
	}
}

// isDelete reports whether a change is of a tombstone, whose object is awaited.
func isDelete(change object.Change) bool {
	return change.Action == object.Deleted || change.Action == object.Absent || change.Action == object.Pending
}

// reportOrphans reports objects of the old release that the new one neither has nor deletes.
func (r *rehearsal) reportOrphans(a *appliedStage) {
	for _, orphan := range a.Orphans {
		id := orphan.ID
		seen := lint.RehearsalObservation{
			Rule:    lint.RehearsalLeft,
			Object:  id.String(),
			Message: "it is left behind: the release neither has nor deletes it",
		}
		for _, m := range manifestsOf(r.Old) {
			if m.ID() == id { // reported in the previous release, and yet of this update
				seen.In, seen.Path, seen.Line = lint.InPrevious, m.Path, m.Line
			}
		}
		r.found.seen = append(r.found.seen, seen)
	}
}
