package object

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/pkg/payload"
)

// IsRetryable reports whether another try may succeed.
func (a *Applier) IsRetryable(m *payload.Manifest, err error) bool {
	switch causeOf(err).retry {
	case later:
		return true
	case whileNew:
		return a.served.isNew(newFor, m.GroupVersionKind().Group)
	case justAfter: // servers see a changed definition after a moment
		return a.served.isNew(justAfterFor, m.GroupVersionKind().Group)
	default:
		return false
	}
}

// WantedPause returns the pause that the server requests after a failure.
func WantedPause(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second
}

// Pause waits for a duration, and reports whether it has done so before the context has ended.
func Pause(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Backoff returns the pauses after failures, which grow from half a second.
func Backoff() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 20, Cap: 15 * time.Second}
}

// lastAnswers limits the time of pending requests after an interruption: API servers give up on a request after a
// minute.
const lastAnswers = 70 * time.Second

// RequestContext returns the context for requests. Unless the lock is lost, this context outlives ctx for a while, so
// that pending requests may complete.
func RequestContext(ctx context.Context, hold *lock.Hold) (context.Context, context.CancelFunc) {
	requestCtx, cancel := hold.Requests(ctx) // after the loss of the lock, another process writes
	context.AfterFunc(ctx, func() {
		if Pause(requestCtx, lastAnswers) {
			cancel()
		}
	})
	return requestCtx, cancel
}
