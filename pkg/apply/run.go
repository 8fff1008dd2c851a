package apply

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A run is one walk through a payload.
type run struct {
	cluster *cluster.Cluster
	before  *inventory.Inventory
	options Options
	order   *order
	walking sync.Mutex // guards walked
	walked  *graph.Walk
	earlier *graph.Walk    // the one that ended when the time was up
	tracker *await.Tracker // nil of a preview
	nodes   *nodes
	applier *object.Applier
	act     func(*payload.Manifest) (object.Change, error) // does a step, once

	requests context.Context // of requests: it outlives an interruption for a while, so that none is cut off
	cut      context.CancelFunc

	telling    sync.Mutex                 // so that one thing is told after the other
	heard      map[*payload.Manifest]bool // waits that were told of, and are not over; while telling
	explaining sync.Mutex                 // so that nothing is explained twice
	notes      sync.WaitGroup             // of what goes into the record meanwhile

	mu       sync.Mutex      // guards what follows
	changes  []object.Change // by step
	areOver  []bool          // by step: nothing is done about it any more
	unready  map[*payload.Manifest]*object.Failure
	retries  map[int]Wait
	warnings map[string][]string
	adopted  map[*payload.Manifest][]string // from whom

	lateFor string // why not all was done when the time was up
}

func newRun(c *cluster.Cluster, before *inventory.Inventory, options Options) *run {
	return &run{
		cluster: c, before: before, options: options,
		unready: map[*payload.Manifest]*object.Failure{}, retries: map[int]Wait{}, heard: map[*payload.Manifest]bool{}, warnings: map[string][]string{},
		adopted: map[*payload.Manifest][]string{},
	}
}

// start begins to send requests.
func (r *run) start(ctx context.Context, manifests []*payload.Manifest) {
	r.requests, r.cut = object.Requests(ctx, r.options.Lock)
	r.tracker = await.New(r.requests, r.cluster, await.Options{
		Release: r.options.Release, Standard: r.options.Standard, Installing: r.options.Mode == graph.Install,
	}, await.Handler{
		Extended: func(live *unstructured.Unstructured) { r.applier.Extended(live) },
		Ready:    r.becameReady, Finished: r.finished, Invisible: r.invisible,
	})
	r.applier = r.newApplier(manifests, r.tracker)
	r.act = r.applier.Apply
}

func (r *run) newApplier(manifests []*payload.Manifest, readiness object.Readiness) *object.Applier {
	options := r.options.objects()
	options.Manifests = manifests
	return object.New(r.requests, r.cluster, r.before, options, object.Handler{Readiness: readiness, Warned: r.warn, Adopted: r.hasAdopted})
}

// plan orders what is to be done.
func (r *run) plan(manifests []*payload.Manifest) (err error) {
	r.order, err = newOrder(manifests, graph.Options{Mode: r.options.Mode, Attempt: r.options.Attempt}, r.applier.IsThere)
	if err != nil {
		return err
	}
	r.nodes = newNodes(r.order)
	r.applier.FindScaled()
	r.changes, r.areOver = make([]object.Change, len(r.order.steps)), make([]bool, len(r.order.steps))
	for i, step := range r.order.steps {
		r.changes[i] = object.Change{Manifest: step.Manifest, Action: object.NotDone}
		r.applier.Expect(step.Manifest)
	}
	return nil
}

func (r *run) close() {
	r.cut()
	r.tracker.Close()
}

// awaitAll waits until everything that was applied is ready, at the same time, and says whether all
// is done. After a failure there is no point in it.
func (r *run) awaitAll(ctx context.Context) (isDone bool) {
	hasFailed := slices.ContainsFunc(r.changes, func(change object.Change) bool { return change.Action == object.Failed })
	if r.options.NoWait || hasFailed {
		return !hasFailed
	}
	var all []*payload.Manifest
	for _, step := range r.order.steps {
		all = append(all, step.Manifest)
	}
	failed, err := r.tracker.Wait(ctx, all)
	for _, o := range slices.Backward(failed) {
		err = r.explain(o)
	}
	isReady := err == nil // what is not ready is told of in the report
	return isReady && !slices.ContainsFunc(r.changes, func(change object.Change) bool { return change.Action == object.NotDone })
}
