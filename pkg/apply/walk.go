package apply

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/record"
)

// A run is one walk through a payload.
type run struct {
	cluster *cluster.Cluster
	before  *inventory.Inventory
	options Options
	order   *order
	walking sync.Mutex // guards walked
	walked  *graph.Walk
	earlier *graph.Walk // the one that ended when the time was up
	follow  *follower
	nodes   *nodes
	slots   *semaphore.Weighted // for writing
	scaling *scaling

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

func newRun(c *cluster.Cluster, before *inventory.Inventory, options Options) *run {
	return &run{
		cluster: c, before: before, options: options, slots: semaphore.NewWeighted(int64(options.Workers)),
		known: options.Journal.fingerprints(), fingerprints: options.Fingerprints,
		unready: map[*payload.Manifest]*Failure{}, retries: map[int]Wait{}, heard: map[*payload.Manifest]bool{}, warnings: map[string][]string{},
		scaling: &scaling{}, adopted: map[*payload.Manifest][]string{},
	}
}

// start begins to send requests.
func (r *run) start(ctx context.Context) {
	r.requests, r.cut = record.UnderLock(ctx) // else somebody else writes
	context.AfterFunc(ctx, r.cutLate)
	r.follow = newFollower(r.requests, r.cluster, r.options, audience{
		extends: r.extended, ready: r.becameReady, finished: r.finished, unseen: r.unseen,
	})
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
		r.follow.close()
	}
}

// walk goes through the graph. A node that fails holds up only those that come after it.
func (r *run) walk(ctx context.Context) {
	type end struct {
		node  int
		state graph.State
	}
	ends := make(chan end)
	r.walking.Lock()
	r.earlier, r.walked = r.walked, r.order.graph.Walk()
	r.walking.Unlock()
	workers := &crew{todo: make(chan int), do: func(ctx context.Context, node int) { ends <- end{node, r.node(ctx, node)} }}
	defer close(workers.todo)
	for range min(r.options.Workers, len(r.order.graph.Nodes)) {
		workers.hire(ctx)
	}
	ready := newQueue(r.isServed)
	for running := 0; ; {
		for _, node := range r.begin() {
			r.enqueue(ready, node)
		}
		if ctx.Err() != nil {
			ready = newQueue(r.isServed)
		}
		from := ready.next()
		if running == 0 && from == nil {
			return
		}
		var todo chan<- int // nil while there is nothing to do
		var next int
		if from != nil {
			todo, next = workers.todo, from.nodes[0]
		}
		select {
		case todo <- next:
			from.take()
			running++
		case ended := <-ends:
			r.ended(ended.node, ended.state)
			running--
		}
	}
}

// ended notes how a node ended.
func (r *run) ended(node int, state graph.State) {
	r.walking.Lock()
	defer r.walking.Unlock()
	r.walked.Done(node, state)
}

// node applies what is in one node, in order. In an update it waits until all is ready:
// not at the end only, because levels that follow each other and have one component each
// are in one node.
func (r *run) node(ctx context.Context, node int) graph.State {
	steps := r.order.graph.Nodes[node].Tasks
	start := 0
	for _, end := range r.order.pieces(steps) {
		isDone := r.piece(ctx, r.order.place(steps[start]), func() bool {
			for _, row := range r.order.rows(steps[start:end]) {
				if !r.row(ctx, row) {
					return false
				}
			}
			return r.awaitNode(ctx, steps[:end])
		})
		if !isDone {
			return graph.Failed
		}
		start = end
	}
	return graph.OK
}

// awaitNode waits in an update until all objects of a node are ready that can be, and says
// whether they are.
func (r *run) awaitNode(ctx context.Context, steps []int) bool {
	if r.options.Mode != graph.Update || r.options.NoWait {
		return true
	}
	var waits []int
	for _, i := range steps {
		if !r.order.late[i] {
			waits = append(waits, i)
		}
	}
	return r.await(ctx, waits) == nil
}

// awaitAll waits until everything that was applied is ready, at the same time, and says whether all
// is done. After a failure there is no point in it.
func (r *run) awaitAll(ctx context.Context) (isDone bool) {
	hasFailed := slices.ContainsFunc(r.changes, func(change Change) bool { return change.Action == Failed })
	if r.options.NoWait || hasFailed {
		return !hasFailed
	}
	var all []int
	for i := range r.order.steps {
		all = append(all, i)
	}
	isReady := r.await(ctx, all) == nil // what is not ready is told of in the report
	return isReady && !slices.ContainsFunc(r.changes, func(change Change) bool { return change.Action == NotDone })
}

// await waits until the objects of some steps are ready. It gives up when one of them
// never will be.
func (r *run) await(ctx context.Context, steps []int) error {
	var objects []*watched
	for _, i := range steps {
		if w := r.follow.find(r.order.steps[i].Manifest); w != nil {
			objects = append(objects, w)
		}
	}
	failed, err := r.follow.await(ctx, objects)
	for _, w := range slices.Backward(failed) {
		err = r.explain(w)
	}
	return err
}
