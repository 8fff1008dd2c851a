package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/ready"
	"github.com/runlevel/runlevel/pkg/record"
)

// report sums up, once no step is at work any more.
func (r *run) report(ctx context.Context) *Report {
	report := &Report{Mode: r.options.Mode}
	if r.options.NoWait { // nobody has waited, so nobody wants to know why
		report.Waits, _ = r.waits()
	} else {
		report.Waits = r.explained(r.requests)
	}
	for _, o := range r.tracker.Waiting() {
		if o.Verdict.State == ready.Failed {
			_ = r.explain(o)
		}
	}
	r.explainCalls()
	r.keepFingerprints()
	for _, o := range r.tracker.Ready() {
		if !o.CallsServices { // Services may go at any time
			r.applier.NoteReady(o.Manifest, o.Resource, o.Live)
		}
	}
	r.sum(ctx, report)
	if report.Err != nil {
		report.Left = r.standing(report.Waits)
		report.Left.Ended, report.Left.Error = true, firstLine(report.Err)
	}
	return report
}

// sum takes in what was noted of each step.
func (r *run) sum(ctx context.Context, report *Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sayWhyNotDone(report.Waits)
	report.Changes = slices.Clone(r.changes)
	slices.SortFunc(report.Changes, func(a, b object.Change) int { return payload.InOrder(a.Manifest, b.Manifest) })
	report.Warnings = r.allWarnings()
	report.Err = r.outcome(ctx, report)
	report.Fingerprints, report.Took = r.options.Fingerprints, r.nodes.durations()
}

// allWarnings are the server's, by their texts.
func (r *run) allWarnings() []Warning {
	var warnings []Warning
	for _, text := range slices.Sorted(maps.Keys(r.warnings)) {
		warnings = append(warnings, Warning{Text: text, Files: r.warnings[text]})
	}
	return warnings
}

// keepFingerprints keeps those of objects that this run has not come to.
func (r *run) keepFingerprints() {
	for _, change := range r.changes {
		if !change.Manifest.IsTombstone() && (change.Action == object.NotDone || change.Action == object.Failed) {
			r.applier.KeepFingerprint(change.Manifest)
		}
	}
}

// outcome is why not all is done.
func (r *run) outcome(ctx context.Context, report *Report) error {
	var failures []error
	undone := 0
	for _, change := range report.Changes {
		switch change.Action {
		case object.Failed:
			failures = append(failures, change.Err)
		case object.NotDone:
			undone++
		}
	}
	for _, failure := range r.unready {
		failures = append(failures, failure)
	}
	trouble := condense(failures)
	switch {
	case trouble != nil && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", whyEnded(ctx), trouble)
	case trouble != nil:
		return trouble
	case ctx.Err() != nil && (undone > 0 || len(failures) > 0 || len(report.Waits) > 0):
		return fmt.Errorf("%w: %s", whyEnded(ctx), leftOver(undone+len(failures), len(report.Waits)))
	default:
		return nil
	}
}

// whyEnded is why a run ended early. Whatever interrupted it, a signal for example, it was
// interrupted.
func whyEnded(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrTimeout) || errors.Is(cause, record.ErrLost) {
		return cause
	}
	return ctx.Err()
}

// leftOver says in words what a run has not come to.
func leftOver(undone, waits int) string {
	var parts []string
	if undone > 0 {
		parts = append(parts, printable.Count(undone, "object")+" not applied")
	}
	if waits > 0 {
		parts = append(parts, printable.Count(waits, "object")+" not ready")
	}
	return strings.Join(parts, ", ")
}

// sayWhyNotDone names what the steps that were never done waited for.
func (r *run) sayWhyNotDone(waits []Wait) {
	awaited := byID(waits)
	for node, steps := range r.order.graph.Nodes {
		why := r.nodesBefore(node)
		for _, i := range steps.Tasks {
			switch change := &r.changes[i]; change.Action {
			case object.NotDone:
				change.Message = cmp.Or(why, r.needed(i, awaited))
			case object.Failed:
				why = "after " + change.Manifest.ID().String() + ", which failed"
			default:
				if _, isAwaited := awaited[change.Manifest.ID()]; why == "" && isAwaited {
					why = "after " + change.Manifest.ID().String() + ", which is not ready"
				}
			}
		}
	}
}

// needed names an object without which a step could not begin.
func (r *run) needed(step int, awaited map[kinds.ID]Wait) string {
	if id := r.awaitedBy(step, awaited); id != nil {
		return "after " + id.String() + ", which is not ready"
	}
	return ""
}

// nodesBefore names the nodes that one waits for.
func (r *run) nodesBefore(node int) string {
	var names []string
	for _, blocker := range r.walked.WhyBlocked(node) {
		if name := r.nameOf(blocker); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "after " + strings.Join(names, "; ")
}

// nameOf names a node by what it does first.
func (r *run) nameOf(node int) string {
	first := r.order.steps[r.order.graph.Nodes[node].Tasks[0]].Manifest
	return cmp.Or(object.NodeName(first), first.ID().String())
}
