package apply

import (
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply/await"
)

// isPatient reports whether failures hold nothing up: see Options.Patience.
func (w *walk) isPatient() bool { return w.run.options.Patience > 0 && w.ctx.Err() == nil }

// isTooLong reports whether a try or a wait that has begun at a time is to be given up.
func (w *walk) isTooLong(began time.Time) bool {
	return w.isPatient() && time.Since(began) > w.run.options.Patience
}

// atMost bounds a pause.
func (w *walk) atMost(pause time.Duration) time.Duration {
	if w.isPatient() {
		return min(pause, w.run.options.Patience)
	}
	return pause
}

// unreadyOf returns the objects of tasks that are not ready.
func (w *walk) unreadyOf(tasks []int) []await.Object {
	isAwaited := map[kinds.ID]bool{}
	for _, task := range tasks {
		isAwaited[w.run.order.tasks[task].ID()] = !w.isGivenUp[task]
	}
	return slices.DeleteFunc(w.run.tracker.Waiting(), func(o await.Object) bool { return !isAwaited[o.Manifest.ID()] })
}

// endFailedWait ends a wait whose objects are not ready, as a failure; or, with patience, goes on to wait for the others.
func (w *walk) endFailedWait(d *diagnosed) {
	if !w.isPatient() {
		d.parking.endAwait(w, false)
		return
	}
	failed := map[kinds.ID]bool{}
	for _, failure := range d.failures {
		failed[failure.ID] = true
	}
	for _, task := range d.parking.tasks {
		w.isGivenUp[task] = w.isGivenUp[task] || failed[w.run.order.tasks[task].ID()]
	}
	w.await(d.parking.tasks, d.parking)
}
