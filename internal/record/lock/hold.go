package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/runlevel/runlevel/internal/record/bootclock"
)

// A Hold is a lock that this process has acquired. A nil Hold can't be lost.
type Hold struct {
	election *election
	held     context.Context
	end      context.CancelFunc
}

func newHold(ctx context.Context, e *election) *Hold {
	held, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.ended, func() { end(context.Cause(e.ended)) })
	return &Hold{election: e, held: held, end: func() {
		stop()
		end(nil)
	}}
}

// Context returns a context that ends with the context of Acquire, or when the lock is lost: its cause is
// then an ErrLost.
func (h *Hold) Context() context.Context { return h.held }

// Holder returns the name of this process in the lock.
func (h *Hold) Holder() string { return h.election.options.Holder }

// Check returns nil if the lock is certainly held, and has to be called before each write under the lock. If
// the last renewal is older than the lock's duration, because the process or the machine was asleep, Check
// waits until the lock is renewed. If the lock is lost, it returns an ErrLost.
func (h *Hold) Check(ctx context.Context) error {
	if h == nil {
		return nil
	}
	for {
		age, renewed := h.election.fence.age()
		if h.election.ended.Err() != nil {
			return context.Cause(h.election.ended)
		}
		if age < h.election.options.Duration {
			return nil
		}
		select {
		case <-renewed:
		case <-h.election.ended.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Release releases the lock, and returns the error of the work under the lock. If the lock was lost, Release returns an
// ErrLost, which contains that error, too.
func (h *Hold) Release(err error) error {
	if err == nil {
		err = h.Check(context.WithoutCancel(h.held))
	}
	lost := context.Cause(h.held)
	if lost == nil { // the context may not have ended yet
		lost = context.Cause(h.election.ended)
	}
	h.end()
	h.election.leave()
	switch {
	case err == nil, !errors.Is(lost, ErrLost), errors.Is(err, ErrLost):
		return err
	case err == context.Canceled:
		return lost
	default:
		return fmt.Errorf("%w (%w)", lost, err)
	}
}

// Delete deletes the Lease, with the copy of the record in the Lease, where Release would free it: no objects are left
// to protect. If the lock was lost, Delete returns an ErrLost.
func (h *Hold) Delete(ctx context.Context) error {
	if err := h.Check(ctx); err != nil {
		return h.Release(err)
	}
	h.end()
	h.election.end(nil)
	<-h.election.left
	return h.election.remove(ctx)
}

// Requests returns a context for requests that may outlive ctx. The context ends when the lock is lost.
func (h *Hold) Requests(ctx context.Context) (context.Context, context.CancelFunc) {
	requests, end := context.WithCancelCause(context.WithoutCancel(ctx))
	endIfLost := func(held context.Context) func() bool {
		return context.AfterFunc(held, func() {
			if cause := context.Cause(held); errors.Is(cause, ErrLost) {
				end(cause)
			}
		})
	}
	stops := []func() bool{endIfLost(ctx)}
	if h != nil {
		stops = append(stops, endIfLost(h.election.ended))
	}
	return requests, func() {
		for _, stop := range stops {
			stop()
		}
		end(nil)
	}
}

// A fence contains the time of the last renewal of a Lease, by the clock of package bootclock.
type fence struct {
	mu      sync.Mutex
	last    time.Duration
	renewed chan struct{} // closed by the next renewal
}

// renew records a renewal whose request was sent at a time.
func (f *fence) renew(sent time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = sent
	close(f.renewed)
	f.renewed = make(chan struct{})
}

// age returns the age of the last renewal, and a channel that the next renewal closes.
func (f *fence) age() (time.Duration, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bootclock.Now() - f.last, f.renewed
}
