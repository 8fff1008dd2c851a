package apply

import (
	"errors"
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// A pendingWait is a wait of a step, of a node, or of the whole run.
type pendingWait struct {
	step    int       // to continue
	node    *nodeWalk // whose part ends; nil if a step waits
	isAtEnd bool      // all objects are awaited, at the end of the run

	tasks   []int            // whose objects have to be ready
	began   time.Time        // of the wait for them
	objects *await.GroupWait // for objects to be ready; nil for another wait
	timer   *time.Timer      // for a time; nil for none
	until   *object.StepWait // for the event that the step itself awaits; nil for none
	ended   chan struct{}    // closed when the wait for until is over
}

// queueAfter queues a step after a pause.
func (w *walk) queueAfter(pause time.Duration, step int) { w.pause(&pendingWait{step: step}, pause) }

// pause begins a wait that ends after a pause at the latest.
func (w *walk) pause(p *pendingWait, pause time.Duration) {
	w.pending[p] = true
	p.timer = time.AfterFunc(pause, func() { w.inbox.put(event{resumed: p}) })
}

// awaitEvent makes a step wait for its event. If the walk ends before, the step is not done, and the report names its
// wait.
func (w *walk) awaitEvent(step int, wait *object.StepWait) {
	w.forgetFailure(step)
	waiting, isNew := w.results.waiting(step, w.order.steps[step].ID(), wait, w.cluster.Now())
	if isNew {
		w.results.events.waiting(waiting)
	}
	if waited := w.cluster.Now().Sub(waiting.Since); w.timeout.isOver(time.Now().Add(-waited)) {
		wait.Stop()
		err := &reason.Error{Reason: object.WorkloadFailed, Err: errors.New("it waits: " + waiting.For)}
		w.giveUp(step, object.TryResult{Change: object.Change{
			StepID: waiting.StepID(), Action: object.Failed, Err: object.FailureOf(waiting.StepID(), err),
		}})
		return
	}
	p := &pendingWait{step: step, until: wait, ended: make(chan struct{})}
	w.pause(p, w.timeout.atMost(wait.Pause))
	go func() {
		select {
		case <-wait.Changed:
			w.inbox.put(event{resumed: p})
		case <-p.ended:
		}
	}()
}

// awaitNeeds makes a step wait until the objects that it needs are ready, if it needs any.
func (w *walk) awaitNeeds(step int) (isPending bool) {
	needs := w.order.needsOf(step)
	if len(needs) == 0 {
		return false
	}
	w.hasNeeds[step] = true
	w.await(needs, &pendingWait{step: step})
	return true
}

// await waits until the objects of some tasks are ready, or one has failed. A ClusterOperator has to meet more
// conditions at the end of the apply: see await.Tracker.Await.
func (w *walk) await(tasks []int, p *pendingWait) {
	objects := make([]kinds.ID, 0, len(tasks))
	for _, task := range tasks {
		if !w.timeout.isGivenUp[task] {
			objects = append(objects, w.order.tasks[task].ID())
		}
	}
	w.pending[p], p.tasks, p.began = true, tasks, time.Now()
	p.objects = w.tracker.Await(objects, p.isAtEnd)
	if w.timeout.isEnabled() {
		p.timer = time.AfterFunc(w.options.Patience, func() { w.inbox.put(event{resumed: p}) })
	}
}

// resume continues a step that waits, or ends a wait for objects that has taken too long. The wait may be over already:
// a timer and a change may both end it.
func (w *walk) resume(p *pendingWait) {
	switch {
	case !w.pending[p]:
	case p.objects != nil && !w.timeout.isOver(p.began):
		p.timer.Reset(max(time.Millisecond, w.timeout.remaining(p.began)))
	case p.objects != nil:
		w.cancel(p)
		w.diagnose(p, w.unready(p))
	default:
		w.cancel(p)
		w.queue.continued = append(w.queue.continued, p.step)
	}
}

// cancel ends a wait.
func (w *walk) cancel(p *pendingWait) {
	delete(w.pending, p)
	if p.objects != nil {
		w.tracker.Cancel(p.objects)
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.until != nil {
		close(p.ended)
		p.until.Stop()
	}
}

// interrupt ends all waits and all queued steps. The ends of waits that have come before are still handled.
func (w *walk) interrupt() {
	for p := range w.pending {
		w.cancel(p)
		if p.objects != nil {
			w.endAwait(p, false)
		} else {
			w.skip(p.step)
		}
	}
	for len(w.queue.continued) > 0 {
		step, _ := w.queue.next()
		w.skip(step)
	}
	w.queue.fresh = nil
}

// endWait ends a wait for objects. If some have failed, their failures are diagnosed first.
func (w *walk) endWait(e await.Event) {
	for p := range w.pending {
		switch {
		case p.objects != e.Wait:
			continue
		case len(e.Failed) == 0:
			w.cancel(p)
			w.endAwait(p, true)
		default:
			w.cancel(p)
			w.diagnose(p, e.Failed)
		}
		return
	}
}

// unready returns the objects of a wait that are not ready.
func (w *walk) unready(p *pendingWait) []await.Object {
	isAwaited := map[kinds.ID]bool{}
	for _, task := range p.tasks {
		isAwaited[w.order.tasks[task].ID()] = !w.timeout.isGivenUp[task]
	}
	return slices.DeleteFunc(w.tracker.Waiting(), func(o await.Object) bool { return !isAwaited[o.Manifest.ID()] })
}

// diagnose finds out why objects are not ready, and then ends the wait for them.
func (w *walk) diagnose(p *pendingWait, objects []await.Object) {
	w.explains++
	go func() {
		failures := w.explainer.failuresOf(w.requestCtx, objects)
		w.inbox.put(event{diagnosed: &diagnosed{p, failures}})
	}()
}

// endFailed ends a wait whose objects are not ready, as a failure. With a timeout for steps, it waits for the others.
func (w *walk) endFailed(p *pendingWait, failures []*object.Failure) {
	if !w.timeout.isEnabled() {
		w.endAwait(p, false)
		return
	}
	for _, task := range p.tasks {
		id := w.order.tasks[task].ID()
		if slices.ContainsFunc(failures, func(failure *object.Failure) bool { return failure.ID == id }) {
			w.timeout.isGivenUp[task] = true
		}
	}
	w.await(p.tasks, p)
}

// endAwait continues the step or node that has waited for objects. If they are not ready, the report names them.
func (w *walk) endAwait(p *pendingWait, isReady bool) {
	switch {
	case p.isAtEnd:
		w.isReady = isReady
	case p.node != nil:
		w.endPart(p.node, isReady)
	case isReady:
		w.queue.continued = append(w.queue.continued, p.step)
	default:
		w.ended(p.step, false)
	}
}
