package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// results are the results of the steps of a run, or of a preview, until now. Each is reported as an event. Only the
// loop of the run uses them.
type results struct {
	events   *emitter
	changes  []object.Change // indexed by step
	unready  map[object.StepID]*object.Failure
	waits    map[int]Wait               // waits of steps, including failed ones that are retried
	running  map[int]bool               // steps that a worker has
	refused  map[int]bool               // hooks that can't run because their Deployments are refused
	warnings map[string][]object.StepID // objects by text
	adopted  map[object.StepID][]string
}

func newResults(events *emitter) *results {
	return &results{
		events: events, unready: map[object.StepID]*object.Failure{}, waits: map[int]Wait{}, running: map[int]bool{},
		refused:  map[int]bool{},
		warnings: map[string][]object.StepID{}, adopted: map[object.StepID][]string{},
	}
}

// textOf returns a failure in a line, without its step.
func textOf(failure *object.Failure) string { return printable.Line(failure.Err.Error()) }

// failureOf returns the failure of a step; nil if it has none.
func (r *results) failureOf(i int) *object.Failure {
	if failure := r.unready[r.changes[i].StepID]; failure != nil {
		return failure
	}
	return r.changes[i].Err
}

// expect adds a change for each step, with the action NotDone.
func (r *results) expect(steps []object.WalkStep) {
	for _, step := range steps {
		r.changes = append(r.changes, object.Change{StepID: step.ID(), Action: object.NotDone})
	}
}

// recordDone records that a step is done, and returns its change, with the managers whose fields were adopted.
func (r *results) recordDone(i int, change object.Change) object.Change {
	if adopted := r.adopted[change.StepID]; adopted != nil {
		change.Adopted = adopted
	}
	r.changes[i] = change
	delete(r.waits, i)
	r.events.emitAbout(change.StepID, Event{Type: Applied, Action: change.Action, Message: change.Message})
	if len(change.Lost) > 0 {
		r.events.emitAbout(change.StepID,
			Event{Type: Overruled, Lost: change.Lost, Message: object.LossesInWords(change.Lost)})
	}
	return change
}

// recordFailure records that a step will not be done. If a hook can't run because its Deployment is refused, the change
// is the Deployment's, and the hook counts as not done.
func (r *results) recordFailure(i int, change object.Change) {
	change.Adopted = r.adopted[change.StepID]
	index := i
	if r.changes[i].StepID != change.StepID {
		index = slices.IndexFunc(r.changes, func(other object.Change) bool { return other.StepID == change.StepID })
		for hook := i; hook < index; hook++ { // the hooks before the Deployment
			r.refused[hook] = true
		}
	}
	failure := change.Err
	r.changes[index], failure.At = change, r.events.now()
	delete(r.waits, i)
	r.events.emitAbout(change.StepID, Event{
		Type:    Failing,
		Action:  object.Failed,
		Reason:  failure.Reason,
		Effect:  failure.Effect(),
		Message: textOf(failure),
	})
}

// recordRetry records that a step has failed, and is tried again. Began is the time of its first try, by the server's
// clock.
func (r *results) recordRetry(i int, failure *object.Failure, attempt int, next time.Duration, began time.Time) {
	text := textOf(failure)
	wait := waitOf(failure.StepID)
	wait.For, wait.Since, wait.Reason, wait.Effect, wait.IsRetry = text, began.UTC(), failure.Reason, failure.Effect(),
		true
	r.waits[i] = wait
	r.events.emitAbout(failure.StepID, Event{
		Type: Retrying, Reason: failure.Reason, Effect: failure.Effect(), Failure: text,
		Message: fmt.Sprintf("attempt %d failed, the next is in %s: %s", attempt, next.Round(100*time.Millisecond),
			text),
	})
}

// recordWait records that a step waits, and returns the wait. Now is by the server's clock.
func (r *results) recordWait(i int, step object.StepID, until *object.StepWait, now time.Time) (wait Wait, isNew bool) {
	wait = waitOf(step)
	wait.For, wait.Since, wait.IsOfStep = printable.Line(until.For), until.Since.UTC(), true
	before := r.waits[i]
	switch {
	case !until.Since.IsZero():
	case before.IsOfStep:
		wait.Since = before.Since
	default:
		wait.Since = now.UTC()
	}
	r.waits[i] = wait
	return wait, !before.IsOfStep || before.For != wait.For
}

// addUnready records failures of objects that will never be ready, each once. The messages of their pods are in the
// failures, since the pods may have been deleted when a user looks.
func (r *results) addUnready(failures ...*object.Failure) {
	for _, failure := range failures {
		if r.unready[failure.StepID] != nil {
			continue
		}
		r.unready[failure.StepID], failure.At = failure, r.events.now()
		r.events.emitAbout(failure.StepID, Event{
			Type:    Failing,
			Reason:  failure.Reason,
			Effect:  failure.Effect(),
			Message: textOf(failure),
			Why:     failure.Why,
		})
	}
}

// addFinding records the warnings and the adopted fields of a try.
func (r *results) addFinding(f *finding) {
	r.addWarnings(f.manifest, f.warnings)
	if f.adopted != nil {
		r.addAdopted(f.manifest, f.adopted)
	}
}

// addWarnings records warnings of the server, and reports each text once.
func (r *results) addWarnings(m *payload.Manifest, warnings []string) {
	for _, text := range warnings {
		steps, isKnown := r.warnings[text]
		if !slices.Contains(steps, object.StepOf(m)) {
			r.warnings[text] = append(steps, object.StepOf(m))
		}
		if !isKnown {
			r.events.emitAbout(object.StepOf(m), Event{Type: Warned, Message: printable.Line(text)})
		}
	}
}

// addAdopted records the managers whose fields were adopted: a later try of the step has no fields left to adopt.
func (r *results) addAdopted(m *payload.Manifest, from []string) {
	r.adopted[object.StepOf(m)] = from
	r.reportAdopted(object.StepOf(m), from)
}

func (r *results) reportAdopted(step object.StepID, from []string) {
	r.events.emitAbout(step, Event{
		Type:    Adopted,
		From:    from,
		Message: "from " + printable.Line(strings.Join(from, ", ")),
	})
}

// isDone reports whether a step was done.
func (r *results) isDone(i int) bool {
	return isDone(r.changes[i])
}

// areDone reports whether all steps were done.
func (r *results) areDone() bool {
	return !slices.ContainsFunc(r.changes, func(change object.Change) bool { return !isDone(change) })
}

func isDone(change object.Change) bool {
	return change.Action != object.NotDone && change.Action != object.Failed
}

// hasFailed reports whether a failure of a step meets a condition.
func (r *results) hasFailed(condition func(*object.Failure) bool) bool {
	return slices.ContainsFunc(r.changes, func(change object.Change) bool {
		return change.Err != nil && condition(change.Err)
	})
}

// resetFailures makes failed steps not done yet, and drops all waits.
func (r *results) resetFailures() {
	clear(r.unready)
	clear(r.waits)
	clear(r.refused)
	for i, change := range r.changes {
		if change.Action == object.Failed {
			r.changes[i] = object.Change{StepID: change.StepID, Action: object.NotDone}
		}
	}
}

// allWarnings returns the server's warnings, by their texts.
func (r *results) allWarnings() []Warning {
	var warnings []Warning
	for _, text := range slices.Sorted(maps.Keys(r.warnings)) {
		warning := Warning{Text: text, Objects: r.warnings[text]}
		for _, step := range warning.Objects {
			if !slices.Contains(warning.Files, step.Path) {
				warning.Files = append(warning.Files, step.Path)
			}
		}
		warnings = append(warnings, warning)
	}
	return warnings
}

// err returns the error of the run: all failures as one error, with the reason for an early end; nil if all is done.
func (r *results) err(ctx context.Context, waits []Wait) error {
	var failures []error
	var left leftovers
	for _, change := range r.changes {
		switch {
		case change.Action == object.Failed:
			failures = append(failures, change.Err)
		case change.Action == object.NotDone && change.Hook != "":
			left.hooks++
		case change.Action == object.NotDone:
			left.undone++
		}
	}
	for _, wait := range waits {
		if !wait.IsOfStep { // such a step counts as not done
			left.unready++
		}
	}
	for _, failure := range r.unready {
		failures = append(failures, failure)
	}
	failed := aggregate(failures)
	left.undone += len(failures)
	switch {
	case failed != nil && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", whyEnded(ctx), failed)
	case failed != nil:
		return failed
	case ctx.Err() != nil && left != leftovers{}:
		return fmt.Errorf("%w: %s", whyEnded(ctx), left)
	default:
		return nil
	}
}

// whyEnded returns the reason for the early end of a run: the cause, if it is the timeout or has a reason, such as the
// loss of the lock.
func whyEnded(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrTimeout) || errors.As(cause, new(*reason.Error)) {
		return cause
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return reason.ErrInterrupted
	}
	return ctx.Err()
}

// leftovers count the objects and hooks that a run has left undone.
type leftovers struct{ undone, unready, hooks int }

func (l leftovers) String() string {
	var parts []string
	if l.undone > 0 {
		parts = append(parts, printable.Count(l.undone, "object")+" not applied")
	}
	if l.unready > 0 {
		parts = append(parts, printable.Count(l.unready, "object")+" not ready")
	}
	if l.hooks > 0 {
		parts = append(parts, printable.Count(l.hooks, "hook")+" not done")
	}
	return strings.Join(parts, ", ")
}
