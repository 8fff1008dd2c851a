package object

import (
	"context"
	"time"

	"github.com/runlevel/runlevel/pkg/record"
)

// lastAnswers is how long whoever has to end waits for answers. API servers give up after a minute: what has not
// come then, never will.
const lastAnswers = 70 * time.Second

// Requests returns the context of requests that are sent until another one ends: they may arrive for a while
// after, unless the lock is lost.
func Requests(ctx context.Context, lock *record.Hold) (context.Context, context.CancelFunc) {
	requests, cut := lock.Requests(ctx) // else another applier writes
	context.AfterFunc(ctx, func() {
		timer := time.NewTimer(lastAnswers)
		defer timer.Stop()
		select {
		case <-timer.C:
			cut()
		case <-requests.Done():
		}
	})
	return requests, cut
}
