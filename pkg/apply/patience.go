package apply

import (
	"context"
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// patience is after how long a walk goes on although a step has failed, or an object is not ready: see
// Options.Patience. Without a limit, and once the walk has been interrupted, it does not. On a slow cluster it lasts as
// long as others become ready.
type patience struct {
	ctx       context.Context // of the walk
	limit     time.Duration
	isGivenUp map[int]bool // tasks that are no longer waited for
	isReady   map[kinds.ID]bool
	progress  time.Time // when an object was ready for the first time, or a step was done
}

func newPatience(ctx context.Context, limit time.Duration) *patience {
	return &patience{ctx: ctx, limit: limit, isGivenUp: map[int]bool{}, isReady: map[kinds.ID]bool{}}
}

// noteReady notes that an object is ready. One that was ready before is no progress: it may break again and again.
func (p *patience) noteReady(id kinds.ID) {
	if !p.isReady[id] {
		p.isReady[id], p.progress = true, time.Now()
	}
}

// left returns how much patience is left with a try or a wait that has begun at a time.
func (p *patience) left(began time.Time) time.Duration {
	if began.Before(p.progress) {
		began = p.progress
	}
	return p.limit - time.Since(began)
}

// goesOn reports whether failures hold nothing up.
func (p *patience) goesOn() bool { return p.limit > 0 && p.ctx.Err() == nil }

// isOver reports whether a try or a wait that has begun at a time is to be given up.
func (p *patience) isOver(began time.Time) bool { return p.goesOn() && p.left(began) <= 0 }

// atMost bounds a pause.
func (p *patience) atMost(pause time.Duration) time.Duration {
	if p.goesOn() {
		return min(pause, p.limit)
	}
	return pause
}

// unready returns the objects of a wait that are not ready.
func (p *parking) unready(w *walk) []await.Object {
	isAwaited := map[kinds.ID]bool{}
	for _, task := range p.tasks {
		isAwaited[w.run.order.tasks[task].ID()] = !w.patience.isGivenUp[task]
	}
	return slices.DeleteFunc(w.run.tracker.Waiting(), func(o await.Object) bool { return !isAwaited[o.Manifest.ID()] })
}

// endFailed ends a wait whose objects are not ready, as a failure; or, with patience, goes on to wait for the others.
func (p *parking) endFailed(w *walk, failures []*object.Failure) {
	if !w.patience.goesOn() {
		p.endAwait(w, false)
		return
	}
	for _, task := range p.tasks {
		id := w.run.order.tasks[task].ID()
		if slices.ContainsFunc(failures, func(failure *object.Failure) bool { return failure.ID == id }) {
			w.patience.isGivenUp[task] = true
		}
	}
	w.await(p.tasks, p)
}
