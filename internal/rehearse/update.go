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
	r.programs.setRelease(after)
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
			r.findings.addRefusals(lint.InPayload, m, refusalsOf(nil, m, object.NewFailure(m, err)))
		}
	}
}

// skippedChecks are checks of the gate that are not reported: they check objects that the rehearsal itself created, or
// the failure of an object has more details.
var skippedChecks = []string{
	precondition.RecordElsewhere, precondition.ApplyRunning, precondition.UnservedKinds, precondition.NoNamespace,
	precondition.MissingRights,
	precondition.ForeignObject, precondition.AdminAck, precondition.StoredVersions,
}

// reportGate reports the checks of the gate that would have blocked the update.
func (r *rehearsal) reportGate(a *appliedStage) {
	for _, finding := range a.Findings {
		if finding.Severity != precondition.Blocks || slices.Contains(skippedChecks, finding.Check) {
			continue
		}
		observation := newObservation(lint.RehearsalGate, "%s: %s", finding.Check, finding.Message)
		observation.Path = finding.File
		if finding.Object != nil {
			observation.Object = finding.Object.String()
			if m := a.manifests[manifestKey{finding.File, *finding.Object}]; m != nil {
				observation.Line = m.Line
			}
		}
		r.findings.add(observation)
	}
}

// reportWarnings reports the warnings of the API server.
func (r *rehearsal) reportWarnings(a *appliedStage) {
	for _, warning := range a.Report.Warnings {
		for _, id := range warning.Objects {
			if m := a.manifests[manifestKey{id.Path, id.ID}]; m != nil {
				observation := a.newObservation(lint.RehearsalWarned, "the API server warns: %s",
					printable.Line(warning.Text))
				observation.Field = fieldIn(m, warning.Text)
				r.findings.addForManifest(m, observation)
			}
		}
	}
}

// reportChanges reports objects that were applied only after a retry, and overwritten fields of other managers.
func (r *rehearsal) reportChanges(a *appliedStage) {
	for _, change := range a.Report.Changes {
		m := a.manifests[manifestKey{change.Path, change.ID}]
		if m == nil || change.Hook != "" {
			continue
		}
		failure, wasRetried := a.retryFailures[keyOf(m)]
		if wasRetried && change.Err == nil && a.Mode == graph.Update && !isDelete(change) {
			r.findings.addForManifest(m,
				a.newObservation(lint.RehearsalRetried, "it was refused at first, and applied at a later try: %s",
					failure))
		}
		if len(change.Lost) > 0 {
			lost := object.LossesInWords(change.Lost)
			r.findings.addForManifest(m,
				a.newObservation(lint.RehearsalOverwritten, "it overwrites what others have set: %s", lost))
		}
	}
}

// isDelete reports whether a change belongs to a tombstone, whose object is awaited.
func isDelete(change object.Change) bool {
	return change.Action == object.Deleted || change.Action == object.Absent || change.Action == object.Pending
}

// reportOrphans reports objects of the old release that the new one neither has nor deletes.
func (r *rehearsal) reportOrphans(a *appliedStage) {
	for _, orphan := range a.Orphans {
		observation := newObservation(lint.RehearsalLeft, "it is left behind: the release neither has nor deletes it")
		observation.Object = orphan.ID.String()
		if m := r.old[orphan.ID]; m != nil { // the line is in the previous release, but the finding is about the update
			observation.In, observation.Path, observation.Line = lint.InPrevious, m.Path, m.Line
		}
		r.findings.observations = append(r.findings.observations, observation)
	}
}
