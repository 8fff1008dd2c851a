package apply

import (
	"errors"
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// This file decides what a step or a node waits for, and how the walk continues at the end of the wait.

// awaitEvent makes a step wait for its event. If the walk ends before, the step is not done, and the report names its
// wait.
func (w *walk) awaitEvent(step int, until *object.StepWait) {
	w.tries.forgetFailure(step)
	wait, isNew := w.results.recordWait(step, w.order.steps[step].ID(), until, w.cluster.Now())
	if isNew {
		w.results.events.reportWait(wait)
	}
	if waited := w.cluster.Now().Sub(wait.Since); !w.timeout.isOver(time.Now().Add(-waited)) {
		w.pending.awaitEvent(step, until)
		return
	}
	until.Stop()
	err := &reason.Error{Reason: object.WorkloadFailed, Err: errors.New("it waits: " + wait.For)}
	w.giveUp(step, object.TryResult{Change: object.Change{
		StepID: wait.StepID(), Action: object.Failed, Err: object.FailureOf(wait.StepID(), err),
	}})
}

// awaitNeeds makes a step wait until the objects that it needs are ready, if it needs any.
func (w *walk) awaitNeeds(step int) (isPending bool) {
	needs := w.order.needsOf(step)
	if len(needs) == 0 {
		return false
	}
	w.hasNeeds[step] = true
	w.pending.awaitObjects(needs, &pendingWait{step: step})
	return true
}

// awaitPart waits, in an update, until all objects of a part are ready, and those of the parts before it. A node may
// have several parts, since consecutive levels of one component each share a node.
func (w *walk) awaitPart(n *nodeWalk) {
	if w.options.Mode != graph.Update || w.options.NoWait {
		w.schedule.endPart(n, true)
		return
	}
	tasks := w.order.tasksOf(n.steps[:n.parts[0]])
	isUnawaited := func(task int) bool { return w.order.isUnawaited[task] }
	w.pending.awaitObjects(slices.DeleteFunc(tasks, isUnawaited), &pendingWait{node: n})
}

// awaitAll waits, at the end of the run, until all objects are ready at the same time.
func (w *walk) awaitAll() {
	all := make([]int, len(w.order.tasks))
	for i := range all {
		all[i] = i
	}
	w.pending.awaitObjects(all, &pendingWait{isAtEnd: true})
}

// handleWaitEnd continues a step whose time to wait is over, or ends a wait for objects that has taken too long. The
// wait may be over already: a timer and a change may both end it.
func (w *walk) handleWaitEnd(wait *pendingWait) {
	switch {
	case !w.pending.waits[wait]:
	case wait.objects != nil && !w.timeout.isOver(wait.began):
		wait.timer.Reset(max(time.Millisecond, w.timeout.remaining(wait.began)))
	case wait.objects != nil:
		w.pending.cancel(wait)
		w.pending.diagnose(wait, w.pending.unready(wait))
	default:
		w.pending.cancel(wait)
		w.schedule.requeue(wait.step)
	}
}

// handleGroupEnd ends a wait for objects. If some have failed, their failures are diagnosed first.
func (w *walk) handleGroupEnd(e await.Event) {
	wait := w.pending.of(e.Wait)
	switch {
	case wait == nil:
	case len(e.Failed) == 0:
		w.pending.cancel(wait)
		w.endWait(wait, true)
	default:
		w.pending.cancel(wait)
		w.pending.diagnose(wait, e.Failed)
	}
}

// handleDiagnosis ends a wait whose objects are not ready, as a failure. With a timeout for steps, the wait continues
// for the objects that have not failed.
func (w *walk) handleDiagnosis(d *waitDiagnosis) {
	w.pending.diagnoses--
	w.results.addUnready(d.failures...)
	if !w.timeout.isEnabled() {
		w.endWait(d.wait, false)
		return
	}
	for _, task := range d.wait.tasks {
		id := w.order.tasks[task].ID()
		if slices.ContainsFunc(d.failures, func(failure *object.Failure) bool { return failure.ID == id }) {
			w.timeout.isGivenUp[task] = true
		}
	}
	w.pending.awaitObjects(d.wait.tasks, d.wait)
}

// endWait continues the step or the node that has waited for objects. If they are not ready, the report names them.
func (w *walk) endWait(wait *pendingWait, isReady bool) {
	switch {
	case wait.isAtEnd:
		w.isReady = isReady
	case wait.node != nil:
		w.schedule.endPart(wait.node, isReady)
	case isReady:
		w.schedule.requeue(wait.step)
	default:
		w.endStep(wait.step, false)
	}
}

// interrupt ends all waits and all queued steps. The ends of waits that have come before are still handled.
func (w *walk) interrupt() {
	for wait := range w.pending.waits {
		w.pending.cancel(wait)
		if wait.objects != nil {
			w.endWait(wait, false)
		} else {
			w.skip(wait.step)
		}
	}
	w.schedule.empty(w.skip)
}
