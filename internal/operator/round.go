package operator

import (
	"context"
	"sync"
	"time"
)

// A round is one run through a loop. Another goroutine ends it early when it changes the input of the loop.
type round struct {
	mu     sync.Mutex
	cancel context.CancelFunc // nil before the first round
}

// begin ends the round before, and returns a context that ends with this one. A loop begins a round before it reads its
// input, so that it misses no change.
func (r *round) begin(ctx context.Context) context.Context {
	r.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, r.cancel = context.WithCancel(ctx)
	return ctx
}

// end ends the round.
func (r *round) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel != nil {
		r.cancel()
	}
}

// pause waits until a round ends, or for a time if it is not zero.
func pause(round context.Context, d time.Duration) {
	var over <-chan time.Time
	if d > 0 {
		over = time.After(d)
	}
	select {
	case <-round.Done():
	case <-over:
	}
}
