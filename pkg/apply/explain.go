package apply

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// Limits of the diagnosis of pods that do not come up: the text, the workloads and the time that a user has patience
// for.
const (
	maxExplained  = 20
	explainAtOnce = 4
	explainFor    = 5 * time.Second
)

// An explainer finds the reasons of unready objects, and of failed requests.
type explainer struct {
	cluster *cluster.Cluster
	isKept  bool // the release is kept in place after the run: its lock stays held
}

// failuresOf returns the failures of objects that will never be ready, the last object first.
func (e *explainer) failuresOf(ctx context.Context, objects []await.Object) []*object.Failure {
	var failures []*object.Failure
	for _, o := range slices.Backward(objects) {
		failure := object.FailureOf(object.StepOf(o.Manifest), &reason.Error{
			Reason: cmp.Or(o.Verdict.Reason, object.WorkloadFailed), Effect: o.Verdict.Effect,
			Err: errors.New(o.Verdict.Message),
		})
		ctx, cancel := context.WithTimeout(ctx, explainFor)
		failure.Why = e.explainObject(ctx, &diagnosis.Diagnoser{Cluster: e.cluster}, o)
		cancel()
		failures = append(failures, failure)
	}
	return failures
}

// explain adds reasons to waits. The objects are those of the last waits, which are not ready. Only the first waits are
// explained, and a wait that can't be explained is reported without a reason.
func (e *explainer) explain(ctx context.Context, waits []Wait, objects []await.Object) {
	ctx, cancel := context.WithTimeout(ctx, explainFor)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(explainAtOnce)
	left, asker, steps := maxExplained, &diagnosis.Diagnoser{Cluster: e.cluster}, len(waits)-len(objects)
	for i := range waits {
		isRetry := i < steps
		if waits[i].IsOfStep || isRetry && !diagnosis.IsCallFailure(waits[i].For) ||
			!isRetry && !diagnosis.CanExplain(objects[i-steps].Live) {
			continue
		}
		if left--; left < 0 {
			break
		}
		group.Go(func() error {
			if isRetry {
				waits[i].Why, _ = asker.ExplainCall(ctx, waits[i].ID.GroupKind(), waits[i].For)
			} else {
				waits[i].Why = e.explainObject(ctx, asker, objects[i-steps])
			}
			return nil
		})
	}
	_ = group.Wait()
}

// explainObject returns the fields that other managers have added to an unready object, and the reasons of its unready
// pods.
// Objects and fields that can't be read are left out.
func (e *explainer) explainObject(ctx context.Context, asker *diagnosis.Diagnoser, o await.Object) []string {
	lines, _ := asker.Explain(ctx, o.Live)
	live, err := e.cluster.Get(ctx, o.Manifest.ID()) // includes managedFields, which the watches leave out
	if err != nil {
		return lines
	}
	return append(ownership.ExplainForeign(live, e.isKept), lines...)
}

// explainCalls adds to the failures of steps the reasons why the API server could not call a webhook or another server.
func (e *explainer) explainCalls(ctx context.Context, changes []object.Change) {
	ctx, cancel := context.WithTimeout(ctx, explainFor)
	defer cancel()
	asker := &diagnosis.Diagnoser{Cluster: e.cluster}
	for _, change := range changes {
		if failure := change.Err; failure != nil {
			lines, _ := asker.ExplainCall(ctx, change.ID.GroupKind(), printable.Line(failure.Err.Error()))
			failure.Why = append(failure.Why, lines...)
		}
	}
}
