package apply

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// Limits of the diagnosis of pods that do not come up: the text, the workloads and the time that a user has patience for.
const (
	mostExplained = 20
	explainAtOnce = 4
	explainFor    = 5 * time.Second
)

// An explainer finds out why objects are not ready, and why requests have failed.
type explainer struct {
	cluster *cluster.Cluster
	results *results
	mu      sync.Mutex // held during a diagnosis, so that nothing is explained twice
}

// failed notes that an object will never be ready, once. The messages of its pods are in the failure itself, since they may be
// gone when a user looks.
func (e *explainer) failed(ctx context.Context, o await.Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	step := object.StepOf(o.Manifest)
	e.results.mu.Lock()
	isKnown := e.results.unready[step] != nil
	e.results.mu.Unlock()
	if isKnown {
		return
	}
	failure := object.FailureOf(step, &reason.Error{
		Reason: cmp.Or(o.Verdict.Reason, object.WorkloadFailed), Effect: o.Verdict.Effect, Err: errors.New(o.Verdict.Message),
	})
	ctx, cancel := context.WithTimeout(ctx, explainFor)
	defer cancel()
	failure.Why, _ = (&diagnosis.Diagnoser{Cluster: e.cluster}).Explain(ctx, o.Live)
	e.results.mu.Lock()
	e.results.unready[step] = failure
	e.results.mu.Unlock()
	e.results.events.about(step, Event{Type: Failing, Reason: failure.Reason, Effect: failure.Effect, Message: printable.Line(failure.Err.Error()), Why: failure.Why})
}

// explain adds reasons to waits. The objects are those of the last waits, which are not ready. Only the first waits are
// explained, and a wait that can't be explained is reported without a reason.
func (e *explainer) explain(ctx context.Context, waits []Wait, objects []await.Object) {
	ctx, cancel := context.WithTimeout(ctx, explainFor)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(explainAtOnce)
	left, asker, steps := mostExplained, &diagnosis.Diagnoser{Cluster: e.cluster}, len(waits)-len(objects)
	for i := range waits {
		isRetry := i < steps
		if waits[i].isOfStep || isRetry && !diagnosis.IsCallFailure(waits[i].For) || !isRetry && !diagnosis.CanExplain(objects[i-steps].Live) {
			continue
		}
		if left--; left < 0 {
			break
		}
		group.Go(func() error {
			if isRetry {
				waits[i].Why, _ = asker.ExplainCall(ctx, waits[i].ID.GroupKind(), waits[i].For)
			} else {
				waits[i].Why, _ = asker.Explain(ctx, objects[i-steps].Live)
			}
			return nil
		})
	}
	_ = group.Wait()
}

// explainCalls adds to the failures of steps why the API server could not call a webhook or another server.
func (e *explainer) explainCalls(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, explainFor)
	defer cancel()
	asker := &diagnosis.Diagnoser{Cluster: e.cluster}
	for _, change := range e.results.changes {
		if failure := change.Err; failure != nil {
			lines, _ := asker.ExplainCall(ctx, change.ID.GroupKind(), printable.Line(failure.Err.Error()))
			failure.Why = append(failure.Why, lines...)
		}
	}
}
