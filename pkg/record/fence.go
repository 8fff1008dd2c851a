package record

import (
	"context"
	"sync"
	"time"
)

// A fence knows when a Lease was renewed last, by sinceBoot.
type fence struct {
	mu      sync.Mutex
	last    time.Duration
	renewed chan struct{} // closed by the next renewal
}

// renew notes a renewal whose request was sent at a time.
func (f *fence) renew(sent time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = sent
	close(f.renewed)
	f.renewed = make(chan struct{})
}

// age returns how old the last renewal is, and a channel that the next one closes.
func (f *fence) age() (time.Duration, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return sinceBoot() - f.last, f.renewed
}

// Check returns nil while the lock surely counts, and is asked before each write that is made under it. When the
// last renewal is older than the Lease lasts, because the process or the whole machine was asleep, it waits
// until the lock is renewed. When the lock is lost, it returns an ErrLost.
func (h *Hold) Check(ctx context.Context) error {
	if h == nil {
		return nil
	}
	return h.election.check(ctx)
}

func (e *election) check(ctx context.Context) error {
	for {
		age, renewed := e.fence.age()
		if e.ended.Err() != nil {
			return context.Cause(e.ended)
		}
		if age < e.lock.Duration {
			return nil
		}
		select {
		case <-renewed:
		case <-e.ended.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
