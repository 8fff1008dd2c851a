package apply

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/hook"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// report returns the results of a run whose steps have ended.
func (r *run) report(ctx context.Context) *Report {
	report := &Report{Mode: r.options.Mode, Fingerprints: r.options.Fingerprints, Took: r.components.took}
	waits, objects := r.allWaits()
	if !r.options.NoWait { // a user who does not wait needs no reasons
		r.explainer.explain(r.requestCtx, waits, objects)
	}
	report.Waits = waits
	hasNotFailed := func(o await.Object) bool {
		return o.Verdict.State != ready.Failed || r.results.unready[object.StepOf(o.Manifest)] != nil
	}
	failed := slices.DeleteFunc(r.tracker.Waiting(), hasNotFailed)
	slices.Reverse(failed)
	r.results.addUnready(r.explainer.failuresOf(r.requestCtx, failed)...)
	r.explainer.explainCalls(r.requestCtx, r.results.changes)
	r.keepFingerprints()
	r.explainNotDone(report.Waits)
	report.Changes, report.Warnings = r.order.inPayload(r.results.changes), r.results.allWarnings()
	report.Err = r.results.err(ctx, report.Waits)
	if report.Err != nil {
		left := r.state(report.Waits)
		left.IsOver, left.Error = true, firstLine(report.Err)
		report.Left = left.Record()
	}
	return report
}

// keepFingerprints notes the versions of ready objects, and keeps the earlier fingerprints of objects that this run has
// not applied.
func (r *run) keepFingerprints() {
	for _, o := range r.tracker.Ready() {
		if !o.CallsServices { // Services may go at any time
			r.applier.NoteReady(o.Manifest, o.Resource, o.Live)
		}
	}
	for i, change := range r.results.changes {
		if task := r.order.tasks[r.order.taskOf[i]]; change.Hook == "" && !task.IsTombstone() && !isDone(change) {
			r.applier.KeepFingerprint(task.Manifest)
		}
	}
}

// explainNotDone adds the reasons of their waits to the steps that were never done.
func (r *run) explainNotDone(waits []Wait) {
	awaited := byStep(waits)
	for node, steps := range r.order.nodes {
		cause := r.nodesBefore(node)
		for _, i := range steps {
			change := &r.results.changes[i]
			wait, isAwaited := awaited[change.StepID]
			switch {
			case r.results.refused[i]:
				change.Message = hook.WhyRefused
			case change.Action == object.NotDone && wait.IsOfStep:
				change.Message, cause = "waiting: "+wait.For, "after "+change.Name()+", which waits"
			case change.Action == object.NotDone:
				change.Message = cmp.Or(cause, r.needed(i, awaited))
			case change.Action == object.Failed:
				cause = "after " + change.Name() + ", which failed"
			case cause == "" && isAwaited:
				cause = "after " + change.Name() + ", which is not ready"
			}
		}
	}
}

// needed names an object that a step needs, and that has not become ready.
func (r *run) needed(step int, awaited map[object.StepID]Wait) string {
	if id := r.awaitedBy(step, awaited); id != nil {
		return "after " + id.String() + ", which is not ready"
	}
	return ""
}

// nodesBefore names the nodes that a node waits for.
func (r *run) nodesBefore(node int) string {
	var names []string
	for _, blocker := range r.nodes.WhyBlocked(node) {
		if name := r.nameOf(blocker); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "after " + strings.Join(names, "; ")
}
