package apply

import (
	"context"
	"fmt"
	"slices"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/hook"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Run applies a payload. Before has the objects of the payload's kinds that the cluster had until then. A run that ends
// early reports the unfinished steps. When ctx ends, pending requests may still complete, unless the lock is lost.
func Run(ctx context.Context, c *cluster.Cluster, release *payload.Payload, before *inventory.Inventory,
	options Options) *Report {
	options = options.withDefaults()
	options.Manifests = release.Manifests
	timed, cancel := context.WithTimeoutCause(ctx, options.Timeout,
		fmt.Errorf("%w after %s", ErrTimeout, options.Timeout))
	defer cancel()
	if options.Keeper == nil {
		ctx = timed
	}
	r := newRun(ctx, c, before, options)
	defer r.close()
	if err := r.plan(); err != nil {
		return &Report{Mode: options.Mode, Err: err}
	}
	if isDone := r.attempt(timed); !isDone && r.mayContinue(ctx) {
		r.passDeadline(timed)
		r.attempt(ctx)
		timed = ctx
	}
	r.tracker.Close()
	r.walk.drain()
	return r.report(timed)
}

// A run is the apply of one payload.
type run struct {
	*runScope
	cancelRequests context.CancelFunc
	walk           *walk // the last one
}

// newRun begins to send requests.
func newRun(ctx context.Context, c *cluster.Cluster, before *inventory.Inventory, options Options) *run {
	s := &runScope{cluster: c, options: options, inbox: newInbox()}
	s.results = newResults(newEmitter(c.Now, options.OnEvent))
	s.explainer = &explainer{c, options.Keeper != nil}
	r := &run{runScope: s}
	s.requestCtx, r.cancelRequests = object.RequestContext(ctx, options.Lock)
	s.tracker = await.New(s.requestCtx, c, await.Options{
		Release: options.Release, Standard: options.standardOf, Installing: options.Mode == graph.Install,
	})
	s.applier = object.New(s.requestCtx, c, before, options.Options, s.inbox.handler(s.tracker))
	return r
}

// plan orders the steps of the manifests.
func (r *run) plan() (err error) {
	hooks := r.hooks()
	newSteps := stepsWithHooks(r.applier, hooks)
	if r.options.newSteps != nil {
		newSteps = r.options.newSteps(r.applier)
	}
	manifests := r.options.Manifests
	if r.order, err = newOrder(manifests, graph.Options{Mode: r.options.Mode}, r.applier, newSteps); err != nil {
		return err
	}
	if r.options.Mode == graph.Install && !r.options.NoWait {
		r.order.holdHooks()
	}
	r.components = newComponents(r.order, r.results.events)
	r.results.expect(r.order.steps)
	hooks.Abandon(func(id kinds.ID) bool {
		isOf := func(m *payload.Manifest) bool { return m.ID() == id && !m.IsTombstone() }
		return slices.ContainsFunc(manifests, isOf)
	})
	r.applier.Begin()
	return nil
}

// hooks returns the settings of the run's hooks.
func (r *run) hooks() hook.Settings {
	hooks, events := r.options.hooks(r.requestCtx, r.cluster, r.applier), r.results.events
	hooks.OnFailure = func(step object.StepID, reason, message string, log []string) {
		events.emitAbout(step, Event{Type: Retrying, Reason: reason, Message: message, Why: log})
	}
	if r.options.FollowHooks {
		hooks.OnLogLine = func(step object.StepID, line string) {
			events.emitAbout(step, Event{Type: Logged, Message: line})
		}
	}
	return hooks
}

func (r *run) close() {
	r.cancelRequests()
	r.tracker.Close()
	r.results.events.close()
}

// attempt walks the graph and waits until everything is ready. It reports whether all is done.
func (r *run) attempt(ctx context.Context) (isDone bool) {
	r.walk = newWalk(ctx, r.runScope)
	r.walk.reporter = newWalkReporter(ctx, r.runScope)
	defer r.walk.reporter.close()
	return r.walk.do()
}

// mayContinue reports whether a run may continue past its deadline: it has a Keeper, its context has not ended, and no
// object was refused.
func (r *run) mayContinue(ctx context.Context) bool {
	isFinal := func(failure *object.Failure) bool { return failure.IsFinal }
	return r.options.Keeper != nil && ctx.Err() == nil && !r.results.hasFailed(isFinal)
}

// passDeadline reports the state of the run, which then continues without a deadline. Objects that have failed may
// become ready later: a pod starts once its image exists, and a deleted Job is created again.
func (r *run) passDeadline(ctx context.Context) {
	report := r.report(ctx)
	if report.Left != nil {
		report.Left.Ended, r.deadlineError = false, report.Left.Error
	}
	r.options.Keeper.NotReady(report)
	r.tracker.TolerateFailures()
	r.results.resetFailures()
}

// A stepMaker appends the steps of a task, in their order. One step is about the object itself. Needs are the tasks
// that the first step needs.
type stepMaker func(steps []object.WalkStep, task int, m *payload.Manifest, needs []int) []object.WalkStep

// stepsWithHooks returns the stepMaker of a release whose Deployments may have hooks.
func stepsWithHooks(applier *object.Applier, hooks hook.Settings) stepMaker {
	return func(steps []object.WalkStep, task int, m *payload.Manifest, needs []int) []object.WalkStep {
		if ofHooks := hooks.Steps(task, m, needs); ofHooks != nil {
			return append(steps, ofHooks...)
		}
		return append(steps, applier.NewStep(m, needs))
	}
}
