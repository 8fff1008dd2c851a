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

// stepTries are the failed tries of steps.
type stepTries map[int]*tryHistory

// A tryHistory contains the failed tries of a step.
type tryHistory struct {
	count   int
	began   time.Time
	backoff wait.Backoff
	last    *object.TryResult // the last failure; nil if there is none
}

// of returns the tries of a step, of which the first began at a time.
func (s stepTries) of(step int, began time.Time) *tryHistory {
	if s[step] == nil {
		s[step] = &tryHistory{began: began, backoff: object.Backoff()}
	}
	return s[step]
}

// forgetFailure drops the last failure of a step, so that skip does not report it.
func (s stepTries) forgetFailure(step int) {
	if history := s[step]; history != nil {
		history.last = nil
	}
}

// handleTry handles the result of a try.
func (w *walk) handleTry(try *stepTry) {
	w.busy--
	delete(w.results.running, try.step)
	switch {
	case !try.wasTried:
		w.skip(try.step)
	case try.result.Err != nil:
		w.retry(try.step, try.result, try.began)
	case try.result.Wait != nil:
		w.awaitEvent(try.step, try.result.Wait)
	default:
		w.tries.forgetFailure(try.step)
		if !w.isAgain[try.step] { // a client may delete its object again and again
			w.timeout.progress = time.Now()
		}
		w.recordDone(try.step, try.result.Change)
		w.endStep(try.step, true)
	}
}

// recordDone records that a step is done, and passes its object to the Keeper.
func (w *walk) recordDone(step int, change object.Change) {
	if change.Action.HasChanged() {
		w.tracker.NoteChange()
	}
	change = w.results.recordDone(step, change)
	if w.options.Keeper != nil {
		w.options.Keeper.Take(change)
	}
}

// noteFinished records that a Job has finished: the Job does not run again after its removal.
func (w *walk) noteFinished(job *payload.Manifest, uid types.UID) {
	w.jobs.Go(func() {
		if err := w.options.Journal.RememberJob(w.requestCtx, job, uid); err != nil {
			warning := "its completion could not be recorded, so it may run again: " + printable.Line(err.Error())
			w.inbox.put(event{finding: &finding{manifest: job, warnings: []string{warning}}})
		}
	})
}

// retry queues a failed step again after a pause, or gives it up if another try can't help.
func (w *walk) retry(step int, result object.TryResult, began time.Time) {
	isInterrupted, history := w.ctx.Err() != nil, w.tries.of(step, began)
	if isInterrupted && object.IsInterruption(result.Err) {
		result.Err = object.FailureOf(result.StepID, object.CutOff{Cause: context.Cause(w.ctx)})
	}
	if isInterrupted || !result.IsRetryable || w.timeout.isOver(history.began) {
		w.giveUp(step, result)
		return
	}
	history.last = &result
	history.count++
	pause := max(history.backoff.Step(), result.Pause)
	w.results.recordRetry(step, result.Err, history.count, pause, w.cluster.ServerTime(history.began))
	w.pending.pause(step, pause)
}

// giveUp ends a step that has failed.
func (w *walk) giveUp(step int, result object.TryResult) {
	result.Err.IsFinal = w.ctx.Err() == nil
	w.results.recordFailure(step, result.Change)
	w.timeout.isGivenUp[w.order.taskOf[step]] = true
	w.endStep(step, w.timeout.isEnabled())
}

// skip ends a step whose next try the end of the walk has prevented.
func (w *walk) skip(step int) {
	if history := w.tries[step]; history != nil && history.last != nil {
		w.giveUp(step, *history.last)
	} else {
		w.endStep(step, false)
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
		w.isMissing[step] = true // endStep calls doAgain again
		return
	}
	w.isAgain[step] = true
	pause := time.Duration(0)
	if w.tries[step] != nil {
		pause = w.tries[step].backoff.Step()
	}
	w.tries.of(step, time.Now())
	w.pending.pause(step, pause)
}
