package apply

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A walk goes through the graph. One loop hands out steps to workers, as many as may write at a time, and runs
// the events that follow: a step has ended, an object is ready, a pause is over. A step that waits is an entry in
// parked, and takes no worker. Only the loop touches what is in here, but for the events.
type walk struct {
	run   *run
	ctx   context.Context
	queue *queue   // of steps that may begin
	steps chan int // to the workers

	nodes      map[int]*nodeWalk // by step: those that are being walked
	tries      map[int]*tries    // by step: those that were tried in vain
	hasAwaited map[int]bool      // by step: what it needs
	busy       int               // workers
	explaining int               // failures that are being explained
	parked     map[*parking]bool

	mu     sync.Mutex
	events []func()
	signal chan struct{} // there are events
}

// tries are those of a step.
type tries struct {
	count   int
	began   time.Time
	backoff wait.Backoff
}

// A parking is a step or a node that waits for an event.
type parking struct {
	cancel    func() // of what it waits for
	interrupt func() // what follows if the walk has to end before
}

// A nodeWalk is how far a node is: it is done piece by piece, and a piece row by row. The steps of a row are done
// side by side.
type nodeWalk struct {
	node        int
	steps       []int // of the node
	pieces      []int // where they end
	start       int   // of the piece that is being done
	rows        [][]int
	isBegun     bool // the piece
	left        int  // steps of the row
	isFailed    bool
	isContinued bool // a step of it was begun
}

// walk goes through the graph. A node that fails holds up only those that come after it.
func (r *run) walk(ctx context.Context) {
	r.walking.Lock()
	r.earlier, r.walked = r.walked, r.order.graph.Walk()
	r.walking.Unlock()
	w := &walk{
		run: r, ctx: ctx, queue: &queue{}, steps: make(chan int, r.options.Workers), signal: make(chan struct{}, 1),
		nodes: map[int]*nodeWalk{}, tries: map[int]*tries{}, hasAwaited: map[int]bool{}, parked: map[*parking]bool{},
	}
	defer close(w.steps)
	for range min(r.options.Workers, len(r.order.steps)) {
		go w.work()
	}
	w.loop()
}

// loop runs until nothing is left to do, or the context ends and what is being done has ended.
func (w *walk) loop() {
	w.beginNodes()
	ended := w.ctx.Done()
	for {
		w.runEvents()
		if w.ctx.Err() != nil {
			ended = nil
			w.interrupt()
		}
		w.handOut()
		if w.busy+w.explaining+len(w.parked) == 0 && !w.hasEvents() {
			return
		}
		select {
		case <-w.signal:
		case <-ended:
		}
	}
}

// runEvents runs the events that have come, and those that they cause.
func (w *walk) runEvents() {
	for events := w.takeEvents(); len(events) > 0; events = w.takeEvents() {
		for _, event := range events {
			event()
		}
	}
}

func (w *walk) hasEvents() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.events) > 0
}

// post has the loop run an event.
func (w *walk) post(event func()) {
	w.mu.Lock()
	w.events = append(w.events, event)
	w.mu.Unlock()
	select {
	case w.signal <- struct{}{}:
	default: // the loop has not seen the one before
	}
}

func (w *walk) takeEvents() []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

// park waits for an event. Wait is given what to call when the event has come, and returns how to cancel that. What
// has come by the time that the walk has to end, counts.
func (w *walk) park(wait func(wake func(then func())) (cancel func()), interrupt func()) {
	p := &parking{interrupt: interrupt}
	w.parked[p] = true
	p.cancel = wait(func(then func()) {
		w.post(func() {
			if w.parked[p] {
				delete(w.parked, p)
				then()
			}
		})
	})
}

// interrupt ends what waits, and what is not begun.
func (w *walk) interrupt() {
	for p := range w.parked {
		p.cancel()
		delete(w.parked, p)
		p.interrupt()
	}
	for step, isThere := w.queue.take(); isThere; step, isThere = w.queue.take() {
		if w.nodes[step].isContinued {
			w.endStep(step, false)
		}
	}
}

// work does steps.
func (w *walk) work() {
	for step := range w.steps {
		result := w.run.try(w.ctx, step)
		w.post(func() {
			w.busy--
			w.take(step, result)
		})
	}
}

// take takes in what came of a try.
func (w *walk) take(step int, result result) {
	if result.retry == nil {
		w.endStep(step, result.isDone)
		return
	}
	t := w.tries[step]
	if t == nil {
		t = &tries{began: result.began, backoff: object.Backoff()}
		w.tries[step] = t
	}
	t.count++
	pause := max(t.backoff.Step(), object.WantedPause(result.retry))
	w.run.retrying(step, result.retry, t.count, pause, t.began)
	fail := func() {
		w.run.failed(w.ctx, step, result.retry)
		w.endStep(step, false)
	}
	w.park(func(wake func(func())) func() {
		timer := time.AfterFunc(pause, func() { wake(func() { w.queue.continued.add(step) }) })
		return func() { timer.Stop() }
	}, fail)
}

// handOut gives steps to workers that have none. Those that wait for objects are parked instead.
func (w *walk) handOut() {
	for w.busy < w.run.options.Workers {
		step, isThere := w.queue.take()
		if !isThere {
			return
		}
		needs := w.run.order.needs[step]
		switch {
		case w.run.isDone(step): // before the time was up
			w.beginPiece(w.nodes[step])
			w.endStep(step, true)
		case len(needs) > 0 && !w.hasAwaited[step]:
			w.hasAwaited[step] = true
			w.await(needs, func(isReady bool) {
				if isReady {
					w.queue.continued.add(step)
				} else {
					w.endStep(step, false) // the report says which it was
				}
			})
		default:
			w.beginPiece(w.nodes[step])
			w.busy++
			w.steps <- step
		}
	}
}

// await goes on when the objects of some steps are ready, or one of them never will be.
func (w *walk) await(steps []int, then func(isReady bool)) {
	w.park(func(wake func(func())) func() {
		return w.run.tracker.Notify(w.run.manifests(steps), func(failed []await.Object) {
			wake(func() {
				if len(failed) == 0 {
					then(true)
					return
				}
				w.explaining++
				go func() {
					for _, o := range slices.Backward(failed) {
						_ = w.run.explain(o)
					}
					w.post(func() {
						w.explaining--
						then(false)
					})
				}()
			})
		})
	}, func() { then(false) })
}

// beginNodes begins the nodes that nothing holds up any more.
func (w *walk) beginNodes() {
	for _, node := range w.run.begin() {
		if w.ctx.Err() != nil {
			continue
		}
		steps := w.run.order.graph.Nodes[node].Tasks
		n := &nodeWalk{node: node, steps: steps, pieces: w.run.order.pieces(steps)}
		for _, step := range steps {
			w.nodes[step] = n
		}
		w.startPiece(n)
	}
}

// startPiece queues the first row of the next piece of a node.
func (w *walk) startPiece(n *nodeWalk) {
	n.rows, n.isBegun = w.run.order.rows(n.steps[n.start:n.pieces[0]]), false
	w.nextRow(n)
}

// beginPiece reports that the first step of a piece is begun.
func (w *walk) beginPiece(n *nodeWalk) {
	if !n.isBegun {
		n.isBegun, n.isContinued = true, true
		w.run.beginPiece(w.run.order.place(n.steps[n.start]))
	}
}

// nextRow queues the next row of a piece. Behind the last one, in an update, all must be ready that can be: not
// only at the end of the node, since levels that follow each other and have one component each are in one node.
func (w *walk) nextRow(n *nodeWalk) {
	if len(n.rows) == 0 {
		w.awaitPiece(n)
		return
	}
	row := n.rows[0]
	n.rows, n.left = n.rows[1:], len(row)
	line := &w.queue.continued
	if !n.isContinued {
		line = w.queue.lineOf(w.run, n.node)
	}
	line.add(row...)
}

// endStep takes in that nothing is done about a step any more.
func (w *walk) endStep(step int, isDone bool) {
	w.run.over(step)
	n := w.nodes[step]
	n.left--
	n.isFailed = n.isFailed || !isDone
	switch {
	case n.left > 0:
	case n.isFailed:
		w.endPiece(n)
	default:
		w.nextRow(n)
	}
}

func (w *walk) awaitPiece(n *nodeWalk) {
	if w.run.options.Mode != graph.Update || w.run.options.NoWait {
		w.endPiece(n)
		return
	}
	waits := slices.DeleteFunc(slices.Clone(n.steps[:n.pieces[0]]), func(step int) bool { return w.run.order.late[step] })
	w.await(waits, func(isReady bool) {
		n.isFailed = !isReady
		w.endPiece(n)
	})
}

// endPiece goes on to the next piece of a node, or ends the node.
func (w *walk) endPiece(n *nodeWalk) {
	if n.isBegun {
		w.run.endPiece(w.ctx, w.run.order.place(n.steps[n.start]), !n.isFailed)
	}
	switch {
	case n.isFailed:
		w.run.ended(n.node, graph.Failed)
	case len(n.pieces) > 1:
		n.start, n.pieces = n.pieces[0], n.pieces[1:]
		w.startPiece(n)
		return
	default:
		w.run.ended(n.node, graph.OK)
	}
	w.beginNodes()
}

// ended notes how a node ended.
func (r *run) ended(node int, state graph.State) {
	r.walking.Lock()
	defer r.walking.Unlock()
	r.walked.Done(node, state)
}

// manifests returns those of steps.
func (r *run) manifests(steps []int) []*payload.Manifest {
	var manifests []*payload.Manifest
	for _, i := range steps {
		manifests = append(manifests, r.order.steps[i].Manifest)
	}
	return manifests
}
