package rehearse

import (
	"context"
	"slices"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// update updates the old release to the new one, or installs the new one, and reports the findings.
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
		pods.report(ctx, r, after)
	}
	return a
}

// dryRun sends manifests that are not applied to the API server as dry runs.
func (r *rehearsal) dryRun(ctx context.Context, manifests []*payload.Manifest) {
	for _, m := range manifests {
		resource, err := r.cluster.Find(ctx, m.GroupVersionKind())
		if err == nil {
			_, err = r.cluster.Apply(ctx, resource, m.Object(), cluster.Force|cluster.DryRun)
		}
		if err != nil && ctx.Err() == nil {
			r.found.addRefusals(lint.InPayload, m, refusalsOf(nil, m, object.NewFailure(m, err)))
		}
	}
}

// notOfCluster are the checks of the gate about objects that the rehearsal itself has created, or about problems that
// the failure of an object shows better.
var notOfCluster = []string{
	precondition.RecordElsewhere, precondition.ApplyRunning, precondition.UnservedKinds, precondition.NoNamespace,
	precondition.MissingRights,
	precondition.ForeignObject, precondition.AdminAck, precondition.StoredVersions,
}

// reportGate reports the checks of the gate that would have blocked the update.
func (r *rehearsal) reportGate(a *appliedStage) {
	for _, found := range a.Findings {
		if found.Severity != precondition.Blocks || slices.Contains(notOfCluster, found.Check) {
			continue
		}
		observation := observed(lint.RehearsalGate, "%s: %s", found.Check, found.Message)
		observation.Path = found.File
		if found.Object != nil {
			observation.Object = found.Object.String()
			if m := a.manifests[manifestKey{found.File, *found.Object}]; m != nil {
				observation.Line = m.Line
			}
		}
		r.found.add(observation)
	}
}

// reportWarnings reports the warnings of the API server.
func (r *rehearsal) reportWarnings(a *appliedStage) {
	for _, warning := range a.Report.Warnings {
		for _, id := range warning.Objects {
			if m := a.manifests[manifestKey{id.Path, id.ID}]; m != nil {
				observation := a.observed(lint.RehearsalWarned, "the API server warns: %s",
					printable.Line(warning.Text))
				observation.Field = fieldIn(m, warning.Text)
				r.found.addForManifest(m, observation)
			}
		}
	}
}

// reportChanges reports objects that were applied only after another try, and overwritten fields of other managers.
func (r *rehearsal) reportChanges(a *appliedStage) {
	for _, change := range a.Report.Changes {
		m := a.manifests[manifestKey{change.Path, change.ID}]
		if m == nil || change.Hook != "" {
			continue
		}
		failure, wasRetried := a.retried[keyOf(m)]
		if wasRetried && change.Err == nil && a.Mode == graph.Update && !isDelete(change) {
			r.found.addForManifest(m,
				a.observed(lint.RehearsalRetried, "it was refused at first, and applied at a later try: %s", failure))
		}
		if len(change.Lost) > 0 {
			lost := object.LossesInWords(change.Lost)
			r.found.addForManifest(m,
				a.observed(lint.RehearsalOverwritten, "it overwrites what others have set: %s", lost))
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
		observation := observed(lint.RehearsalLeft, "it is left behind: the release neither has nor deletes it")
		observation.Object = orphan.ID.String()
		if m := r.old[orphan.ID]; m != nil { // reported in the previous release, and yet of this update
			observation.In, observation.Path, observation.Line = lint.InPrevious, m.Path, m.Line
		}
		r.found.observations = append(r.found.observations, observation)
	}
}
