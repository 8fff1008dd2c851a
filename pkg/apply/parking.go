package apply

import (
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// A parking is a parked step or node, which waits for an event.
type parking struct {
	cancel    func() // ends the wait
	interrupt func() // is called if the walk ends before the event
}

// park waits for an event. Wait receives the function to call on the event, and returns how to cancel the wait. An event
// that comes before the walk ends is still handled.
func (w *walk) park(wait func(wake func(then func())) (cancel func()), interrupt func()) {
	p := &parking{interrupt: interrupt}
	w.parked[p] = true
	p.cancel = wait(func(then func()) {
		w.post(func() {
			if w.parked[p] {
				delete(w.parked, p)
				then()
			}
		})
	})
}

// interrupt ends all parked and queued steps.
func (w *walk) interrupt() {
	for p := range w.parked {
		p.cancel()
		delete(w.parked, p)
		p.interrupt()
	}
	for len(w.continued) > 0 {
		step := w.continued[0]
		w.continued = w.continued[1:]
		w.skip(step)
	}
	w.fresh = nil
}

// waits parks a step until its wait is over. If the walk ends before, the step is not done, and the report names its wait.
func (w *walk) waits(step int, wait *object.StepWait) {
	w.forgetFailure(step)
	w.run.waits.stepWaits(step, w.run.order.steps[step].ID(), wait)
	w.park(func(wake func(func())) func() {
		var cancel func()
		cancel = wait.Until(func() {
			wake(func() {
				cancel()
				w.continued = append(w.continued, step)
			})
		})
		return cancel
	}, func() { w.skip(step) })
}

// queueAfter queues a step after a pause.
func (w *walk) queueAfter(pause time.Duration, step int) {
	w.park(func(wake func(func())) func() {
		timer := time.AfterFunc(pause, func() { wake(func() { w.continued = append(w.continued, step) }) })
		return func() { timer.Stop() }
	}, func() { w.skip(step) })
}

// awaitNeeds parks a step until the objects that it needs are ready, if it needs any.
func (w *walk) awaitNeeds(step int) (isParked bool) {
	needs := w.run.order.needsOf(step)
	if len(needs) == 0 {
		return false
	}
	w.hasNeeds[step] = true
	w.await(needs, false, func(isReady bool) {
		if isReady {
			w.continued = append(w.continued, step)
		} else {
			w.ended(step, false) // the report names the object
		}
	})
	return true
}

// await calls then when the objects of some tasks are ready, or one of them has failed. A ClusterOperator has to meet more
// conditions at the end of the apply: see await.Tracker.Notify.
func (w *walk) await(tasks []int, isEnd bool, then func(isReady bool)) {
	objects := make([]kinds.ID, len(tasks))
	for i, task := range tasks {
		objects[i] = w.run.order.tasks[task].ID()
	}
	w.park(func(wake func(func())) func() {
		return w.run.tracker.Notify(objects, isEnd, func(failed []await.Object) {
			wake(func() {
				if len(failed) == 0 {
					then(true)
					return
				}
				w.explains++
				go func() {
					for _, o := range slices.Backward(failed) {
						w.run.explainer.failed(w.run.requests, o)
					}
					w.post(func() {
						w.explains--
						then(false)
					})
				}()
			})
		})
	}, func() { then(false) })
}
