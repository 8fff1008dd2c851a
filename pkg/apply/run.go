package apply

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/hook"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Run applies a payload. Before has the objects that the cluster had until then, of the payload's
// kinds. A run that ends early reports what is not done. When ctx ends, pending requests may still
// complete, unless the lock is lost.
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
	r := newRun(ctx, c, before, release.Manifests, options)
	defer r.close()
	if err := r.plan(release.Manifests); err != nil {
		return &Report{Mode: options.Mode, Err: err}
	}
	if isDone := r.attempt(timed); !isDone && r.mayGoOn(ctx) {
		r.passDeadline(timed)
		r.attempt(ctx)
		timed = ctx
	}
	r.tracker.Close()
	r.drain()
	return r.report(timed)
}

// A run is the apply of one payload.
type run struct {
	cluster    *cluster.Cluster
	options    Options
	order      *order
	nodes      *graph.Walk // the present walk through the graph; nil before the first
	components *components
	tracker    *await.Tracker
	applier    *object.Applier
	results    *results
	explainer  *explainer
	inbox      *inbox

	requests context.Context // outlives an interruption for a while, so that no request is cut off
	cut      context.CancelFunc
	jobs     sync.WaitGroup // Jobs that are being noted in the record

	deadlineError string // why not all was done at the deadline
}

// newRun begins to send requests.
func newRun(ctx context.Context, c *cluster.Cluster, before *inventory.Inventory, manifests []*payload.Manifest,
	options Options) *run {
	events := newEmitter(c.Now, options.OnEvent)
	r := &run{
		cluster:   c,
		options:   options,
		results:   newResults(events),
		explainer: &explainer{c, options.Keeper != nil},
		inbox:     newInbox(),
	}
	r.requests, r.cut = object.Requests(ctx, options.Lock)
	r.tracker = await.New(r.requests, c, await.Options{
		Release: options.Release, Standard: options.standardOf, Installing: options.Mode == graph.Install,
	})
	r.applier = object.New(r.requests, c, before, options.Options, r.inbox.handler(r.tracker))
	return r
}

// plan orders the steps of the manifests.
func (r *run) plan(manifests []*payload.Manifest) (err error) {
	hooks := r.hooks()
	newSteps := stepsWithHooks(r.applier, hooks)
	if r.options.newSteps != nil {
		newSteps = r.options.newSteps(r)
	}
	if r.order, err = newOrder(manifests, graph.Options{Mode: r.options.Mode}, r.applier, newSteps); err != nil {
		return err
	}
	if r.options.Mode == graph.Install && !r.options.NoWait {
		r.order.holdHooks()
	}
	r.components = newComponents(r.order, r.results.events)
	r.results.expect(r.order.steps)
	hooks.Abandon(func(id kinds.ID) bool {
		return slices.ContainsFunc(manifests, func(m *payload.Manifest) bool {
			return m.ID() == id && !m.IsTombstone()
		})
	})
	r.applier.Begin()
	return nil
}

// hooks returns the settings of the run's hooks.
func (r *run) hooks() hook.Settings {
	hooks, events := r.options.hooks(r.requests, r.cluster, r.applier), r.results.events
	hooks.Failed = func(step object.StepID, reason, message string, log []string) {
		events.about(step, Event{Type: Retrying, Reason: reason, Message: message, Why: log})
	}
	if r.options.FollowHooks {
		hooks.Logged = func(step object.StepID, line string) { events.about(step, Event{Type: Logged, Message: line}) }
	}
	return hooks
}

func (r *run) close() {
	r.cut()
	r.tracker.Close()
	r.results.events.close()
}

// attempt walks the graph and waits until everything is ready. It reports whether all is done.
func (r *run) attempt(ctx context.Context) (isDone bool) {
	w := newWalk(ctx, r)
	w.reporter = newReporter(ctx, r)
	defer w.reporter.close()
	return w.do()
}

// mayGoOn reports whether a run may go on past its deadline: its context has not ended, and no object was refused.
func (r *run) mayGoOn(ctx context.Context) bool {
	return r.options.Keeper != nil && ctx.Err() == nil &&
		!r.results.hasFailed(func(failure *object.Failure) bool { return failure.IsFinal })
}

// passDeadline reports the state of the run, and lets it go on without a deadline. Objects that have failed may become
// ready later: a pod starts once its image exists, and a deleted Job is created again.
func (r *run) passDeadline(ctx context.Context) {
	report := r.report(ctx)
	if report.Left != nil {
		report.Left.Ended, r.deadlineError = false, report.Left.Error
	}
	r.options.Keeper.NotReady(report)
	r.tracker.TolerateFailures()
	r.results.resetFailures()
}

func (r *run) done(step int, change object.Change) {
	if change.Action.HasChanged() {
		r.tracker.Changed()
	}
	change = r.results.done(step, change)
	if r.options.Keeper != nil {
		r.options.Keeper.Take(change)
	}
}

// drain handles the events that have come after the walk.
func (r *run) drain() {
	for _, e := range r.tracker.Events() {
		r.observe(e)
	}
	r.jobs.Wait()
	for _, e := range r.inbox.take() {
		if e.found != nil {
			r.results.add(e.found)
		}
	}
}

// observe handles an event of the tracker, except for those that move the walk on.
func (r *run) observe(e await.Event) {
	switch e.Type {
	case await.Extended:
		r.applier.Extended(e.Object.Live)
	case await.Ready:
		r.results.events.ready(object.StepOf(e.Object.Manifest), e.Waited)
	case await.Finished:
		r.finished(e.Object.Manifest, e.Object.Live.GetUID())
	case await.Invisible:
		r.results.events.waiting(r.waitFor(e.Object))
	}
}

// finished notes that a Job has finished, so that it is not run again when it is removed.
func (r *run) finished(job *payload.Manifest, uid types.UID) {
	r.jobs.Go(func() {
		if err := r.options.Journal.RememberJob(r.requests, job, uid); err != nil {
			r.inbox.put(event{found: &found{
				manifest: job,
				warnings: []string{"that it is done could not be noted, so it may run again: " +
					printable.Line(err.Error())},
			}})
		}
	})
}

// A stepMaker appends the steps of a task, in their order. One of them is about the object itself. Needs are the tasks
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

// handler returns the Handler of an Applier whose findings come as events.
func (i *inbox) handler(readiness object.Readiness) object.Handler {
	return object.Handler{
		Readiness: readiness,
		Warned: func(m *payload.Manifest, warnings []string) {
			if len(warnings) > 0 {
				i.put(event{found: &found{manifest: m, warnings: warnings}})
			}
		},
		Adopted: func(m *payload.Manifest, managers []string) {
			i.put(event{found: &found{manifest: m, adopted: managers}})
		},
	}
}
