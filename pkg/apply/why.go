package apply

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/reason"
	"github.com/runlevel/runlevel/pkg/trouble"
)

// How much is asked about pods that do not come up: enough for somebody to read, of as
// many workloads as they look at, and no longer than they want to wait for it.
const (
	mostExplained = 20
	explainAtOnce = 4
	explainFor    = 5 * time.Second
)

// explain says why an object will never be ready, once: what its pods say is in the
// failure itself, since they may be gone when somebody looks.
func (r *run) explain(o await.Object) *object.Failure {
	r.explaining.Lock()
	defer r.explaining.Unlock()
	r.mu.Lock()
	known := r.unready[o.Manifest]
	r.mu.Unlock()
	if known != nil {
		return known
	}
	cause := o.Verdict.Reason
	if cause == "" {
		cause = object.WorkloadFailed
	}
	failure := object.NewFailure(o.Manifest, &reason.Error{Reason: cause, Effect: o.Verdict.Effect, Err: errors.New(o.Verdict.Message)})
	ctx, cancel := context.WithTimeout(r.requests, explainFor)
	defer cancel()
	failure.Why = why(ctx, &trouble.Asker{Cluster: r.cluster}, o)
	r.mu.Lock()
	r.unready[o.Manifest] = failure
	r.mu.Unlock()
	r.tell(o.Manifest, Event{Type: Failing, Reason: failure.Reason, Message: printable.Line(failure.Err.Error()), Why: failure.Why})
	return failure
}

// explainAll adds to waits what keeps them: the objects are those of the last waits, which are not ready.
// Others than the first some go without.
func (r *run) explainAll(ctx context.Context, waits []Wait, objects []await.Object) {
	ctx, cancel := context.WithTimeout(ctx, explainFor)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(explainAtOnce)
	left, asker, retries := mostExplained, &trouble.Asker{Cluster: r.cluster}, len(waits)-len(objects)
	for i := range waits {
		isRetry := i < retries
		if isRetry && !trouble.IsOfCall(waits[i].For) || !isRetry && !trouble.Knows(objects[i-retries].Live) {
			continue
		}
		if left--; left < 0 {
			break
		}
		group.Go(func() error {
			if isRetry {
				waits[i].Why = whyCall(ctx, asker, waits[i].manifest, waits[i].For)
			} else {
				waits[i].Why = why(ctx, asker, objects[i-retries])
			}
			return nil
		})
	}
	_ = group.Wait()
}

// explainCalls adds to failures why nobody has answered the API server.
func (r *run) explainCalls() {
	ctx, cancel := context.WithTimeout(r.requests, explainFor)
	defer cancel()
	asker := &trouble.Asker{Cluster: r.cluster}
	for i := range r.changes {
		if failure := r.changes[i].Err; failure != nil {
			failure.Why = append(failure.Why, whyCall(ctx, asker, r.changes[i].Manifest, printable.Line(failure.Err.Error()))...)
		}
	}
}

// why asks what keeps an object from being ready. If that can't be said, the wait is told
// without it.
func why(ctx context.Context, asker *trouble.Asker, o await.Object) []string {
	lines, _ := asker.Of(ctx, o.Live)
	return lines
}

// whyCall does the same for a request that has failed, by its message.
func whyCall(ctx context.Context, asker *trouble.Asker, m *payload.Manifest, message string) []string {
	lines, _ := asker.OfCall(ctx, m.GroupVersionKind().GroupKind(), message)
	return lines
}
