package apply

import (
	"context"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A stepTimeout ends the tries of a step, and the wait for an object, after Options.Patience: the walk continues with
// the next steps. Without a limit, and after an interruption of the walk, the timeout is disabled. On a slow cluster,
// the timeout starts again each time that another object becomes ready.
type stepTimeout struct {
	ctx       context.Context // context of the walk
	limit     time.Duration
	isGivenUp map[int]bool // tasks that are no longer waited for
	isReady   map[kinds.ID]bool
	progress  time.Time // the last time that an object was ready for the first time, or a step was done
}

func newStepTimeout(ctx context.Context, limit time.Duration) *stepTimeout {
	return &stepTimeout{ctx: ctx, limit: limit, isGivenUp: map[int]bool{}, isReady: map[kinds.ID]bool{}}
}

// noteReady notes that an object is ready. An object counts as progress only once: it may break again and again.
func (t *stepTimeout) noteReady(id kinds.ID) {
	if !t.isReady[id] {
		t.isReady[id], t.progress = true, time.Now()
	}
}

// remaining returns how much time remains for a try or a wait, by when it began.
func (t *stepTimeout) remaining(began time.Time) time.Duration {
	if began.Before(t.progress) {
		began = t.progress
	}
	return t.limit - time.Since(began)
}

// isEnabled reports whether failed steps do not block others.
func (t *stepTimeout) isEnabled() bool { return t.limit > 0 && t.ctx.Err() == nil }

// isOver reports whether a try or a wait has to end, by when it began.
func (t *stepTimeout) isOver(began time.Time) bool { return t.isEnabled() && t.remaining(began) <= 0 }

// atMost limits a pause.
func (t *stepTimeout) atMost(pause time.Duration) time.Duration {
	if t.isEnabled() {
		return min(pause, t.limit)
	}
	return pause
}
