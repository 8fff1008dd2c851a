package apply

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// This file has the results of tries: a step is done, waits, is tried again after a pause, or has failed for good.

// tries are the failed tries of a step.
type tries struct {
	count   int
	began   time.Time
	backoff wait.Backoff
	last    *object.TryResult // the last failure; nil if there is none
}

// triesOf returns the tries of a step.
func (w *walk) triesOf(step int, began time.Time) *tries {
	if w.tries[step] == nil {
		w.tries[step] = &tries{began: began, backoff: object.Backoff()}
	}
	return w.tries[step]
}

// handleTry handles the result of a try.
func (w *walk) handleTry(t *tried) {
	w.busy--
	delete(w.results.running, t.step)
	switch {
	case !t.isTried:
		w.skip(t.step)
	case t.did.Err != nil:
		w.failed(t.step, t.did, t.began)
	case t.did.Wait != nil:
		w.awaitEvent(t.step, t.did.Wait)
	default:
		w.forgetFailure(t.step)
		if !w.isAgain[t.step] { // a client may delete its object again and again
			w.timeout.progress = time.Now()
		}
		w.done(t.step, t.did.Change)
		w.ended(t.step, true)
	}
}

// done notes that a step is done.
func (w *walk) done(step int, change object.Change) {
	if change.Action.HasChanged() {
		w.tracker.Changed()
	}
	change = w.results.done(step, change)
	if w.options.Keeper != nil {
		w.options.Keeper.Take(change)
	}
}

// noteFinished notes that a Job has finished, so that it is not run again when it is removed.
func (w *walk) noteFinished(job *payload.Manifest, uid types.UID) {
	w.jobs.Go(func() {
		if err := w.options.Journal.RememberJob(w.requestCtx, job, uid); err != nil {
			warning := "its completion could not be recorded, so it may run again: " + printable.Line(err.Error())
			w.inbox.put(event{found: &found{manifest: job, warnings: []string{warning}}})
		}
	})
}

// failed queues a failed step again after a pause, if another try may help.
func (w *walk) failed(step int, did object.TryResult, began time.Time) {
	isInterrupted, t := w.ctx.Err() != nil, w.triesOf(step, began)
	if isInterrupted && object.IsInterruption(did.Err) {
		did.Err = object.FailureOf(did.StepID, object.CutOff{Cause: context.Cause(w.ctx)})
	}
	if isInterrupted || !did.IsRetryable || w.timeout.isOver(t.began) {
		w.giveUp(step, did)
		return
	}
	t.last = &did
	t.count++
	pause := max(t.backoff.Step(), did.Pause)
	w.results.retrying(step, did.Err, t.count, pause, w.cluster.ServerTime(t.began))
	w.queueAfter(pause, step)
}

// giveUp ends a step that has failed.
func (w *walk) giveUp(step int, did object.TryResult) {
	did.Err.IsFinal = w.ctx.Err() == nil
	w.results.failed(step, did.Change)
	w.timeout.isGivenUp[w.order.taskOf[step]] = true
	w.ended(step, w.timeout.isEnabled())
}

// forgetFailure drops the last failure of a step, so that skip does not report it.
func (w *walk) forgetFailure(step int) {
	if t := w.tries[step]; t != nil {
		t.last = nil
	}
}

// skip ends a step whose next try the end of the walk has prevented.
func (w *walk) skip(step int) {
	if t := w.tries[step]; t != nil && t.last != nil {
		w.giveUp(step, *t.last)
	} else {
		w.ended(step, false)
	}
}

// doAgain repeats a step whose object was deleted after its apply: at once the first time, and then after growing
// pauses.
func (w *walk) doAgain(id kinds.ID) {
	step, exists := w.order.stepOn(id)
	if !exists || w.ctx.Err() != nil {
		return
	}
	if w.isAgain[step] || !w.results.isDone(step) {
		w.isMissing[step] = true // ended calls doAgain again
		return
	}
	w.isAgain[step] = true
	pause := time.Duration(0)
	if w.tries[step] != nil {
		pause = w.tries[step].backoff.Step()
	}
	w.triesOf(step, time.Now())
	w.queueAfter(pause, step)
}
