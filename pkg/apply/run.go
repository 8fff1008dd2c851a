package apply

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/record"
)

// A run is one walk through a payload.
type run struct {
	cluster   *cluster.Cluster
	before    *inventory.Inventory
	options   Options
	order     *order
	walking   sync.Mutex // guards walked
	walked    *graph.Walk
	earlier   *graph.Walk    // the one that ended when the time was up
	tracker   *await.Tracker // nil of a Mender and a preview
	readiness readiness
	nodes     *nodes
	scaling   *scaling
	act       func(*payload.Manifest) (Change, error) // does a step, once

	isMending bool // it is a Mender's, which keeps what it knows to itself

	definitions *definitions

	known, fingerprints *inventory.Fingerprints // from before, and those of this run

	requests context.Context // of requests: it outlives an interruption for a while, so that none is cut off
	cut      context.CancelFunc

	written sync.Map // by group whose definition this run has written: when, or when it became ready

	telling    sync.Mutex                 // so that one thing is told after the other
	heard      map[*payload.Manifest]bool // waits that were told of, and are not over; while telling
	explaining sync.Mutex                 // so that nothing is explained twice
	notes      sync.WaitGroup             // of what goes into the record meanwhile

	mu       sync.Mutex // guards what follows
	changes  []Change   // by step
	areOver  []bool     // by step: nothing is done about it any more
	unready  map[*payload.Manifest]*Failure
	retries  map[int]Wait
	warnings map[string][]string
	adopted  map[*payload.Manifest][]string // from whom

	lateFor string // why not all was done when the time was up
}

// A readiness is told of objects whose readiness may matter.
type readiness interface {
	Expect(m *payload.Manifest, resource cluster.Resource)
	Assume(m *payload.Manifest, wasReady bool)
	Applied(m *payload.Manifest, live *unstructured.Unstructured)
}

// ignored is the readiness of objects that are not waited for.
type ignored struct{}

func (ignored) Expect(*payload.Manifest, cluster.Resource)            {}
func (ignored) Assume(*payload.Manifest, bool)                        {}
func (ignored) Applied(*payload.Manifest, *unstructured.Unstructured) {}

func newRun(c *cluster.Cluster, before *inventory.Inventory, options Options) *run {
	r := &run{
		cluster: c, before: before, options: options,
		known: options.Journal.fingerprints(), fingerprints: options.Fingerprints,
		unready: map[*payload.Manifest]*Failure{}, retries: map[int]Wait{}, heard: map[*payload.Manifest]bool{}, warnings: map[string][]string{},
		scaling: &scaling{}, adopted: map[*payload.Manifest][]string{},
	}
	r.act = r.do
	return r
}

// start begins to send requests.
func (r *run) start(ctx context.Context) {
	r.requests, r.cut = record.UnderLock(ctx) // else somebody else writes
	context.AfterFunc(ctx, r.cutLate)
	r.tracker = await.New(r.requests, r.cluster, await.Options{
		Release: r.options.Release, Standard: r.options.Standard, Installing: r.options.Mode == graph.Install,
	}, await.Handler{Extended: r.extended, Ready: r.becameReady, Finished: r.finished, Invisible: r.invisible})
	r.readiness = r.tracker
}

// plan orders what is to be done.
func (r *run) plan(manifests []*payload.Manifest) (err error) {
	r.definitions = newDefinitions(r.requests, r.cluster, r.before)
	r.order, err = newOrder(manifests, graph.Options{Mode: r.options.Mode, Attempt: r.options.Attempt}, r.isThere)
	if err != nil {
		return err
	}
	r.nodes = newNodes(r.order)
	r.scaling.manifests = manifests
	r.findScaled()
	r.changes, r.areOver = make([]Change, len(r.order.steps)), make([]bool, len(r.order.steps))
	for i, step := range r.order.steps {
		r.changes[i] = Change{Manifest: step.Manifest, Action: NotDone}
		r.expect(step.Manifest)
	}
	return nil
}

// expect notes that the release has an object, for those who ask the record.
func (r *run) expect(m *payload.Manifest) {
	switch {
	case m.IsTombstone():
	case isCreateOnly(m): // how an apply has left it does not matter any more
		r.fingerprints.Expect(r.fingerprints, m.ID())
	default:
		r.fingerprints.Expect(r.known, m.ID())
	}
}

// lastAnswers is how long a run that has to end waits for answers. API servers give up
// after a minute: what has not come then, never will.
const lastAnswers = 70 * time.Second

// cutLate ends the requests of a run that should have ended.
func (r *run) cutLate() {
	timer := time.NewTimer(lastAnswers)
	defer timer.Stop()
	select {
	case <-timer.C:
		r.cut()
	case <-r.requests.Done():
	}
}

func (r *run) close() {
	if r.cut != nil {
		r.cut()
		r.tracker.Close()
	}
}

// awaitAll waits until everything that was applied is ready, at the same time, and says whether all
// is done. After a failure there is no point in it.
func (r *run) awaitAll(ctx context.Context) (isDone bool) {
	hasFailed := slices.ContainsFunc(r.changes, func(change Change) bool { return change.Action == Failed })
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
	return isReady && !slices.ContainsFunc(r.changes, func(change Change) bool { return change.Action == NotDone })
}
