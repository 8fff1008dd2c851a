package apply

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// A walk goes through the graph. One loop hands out steps to workers, as many as may write at a time, and handles
// events: a step has ended, an object is ready, a pause is over. A step that waits is an entry in parked, and takes no
// worker. Only the loop uses the fields, except for mu, events and signal.
type walk struct {
	run   *run
	ctx   context.Context
	steps chan int // to the workers

	continued []int             // queue of the steps of nodes that have begun
	fresh     []int             // queue of the first steps of other nodes, after continued
	nodeOf    map[int]*nodeWalk // by step
	tries     map[int]*tries    // failed tries, by step
	hasNeeds  map[int]bool      // steps whose needs were awaited
	isAgain   map[int]bool      // steps that were done, and are being done again
	isMissing map[int]bool      // steps whose object was deleted while a worker had them
	busy      int               // workers that run a step
	explains  int               // failures that are being explained
	parked    map[*parking]bool
	isOver    bool // a repeated step has failed, so the walk ends

	mu     sync.Mutex
	events []func()
	signal chan struct{} // there are events
}

// tries are the failed tries of a step.
type tries struct {
	count   int
	began   time.Time
	backoff wait.Backoff
	giveUp  func() // notes the last failure; nil if there is none
}

// newWalk returns a walk through the nodes that are not done yet.
func newWalk(ctx context.Context, r *run) *walk {
	r.nodes.begin()
	return &walk{
		run: r, ctx: ctx, steps: make(chan int, r.options.Workers), signal: make(chan struct{}, 1),
		nodeOf: map[int]*nodeWalk{}, tries: map[int]*tries{}, hasNeeds: map[int]bool{}, isAgain: map[int]bool{}, isMissing: map[int]bool{}, parked: map[*parking]bool{},
	}
}

// do goes through the graph, and then waits until all objects are ready at the same time. It reports whether all is done.
// A failed node holds up only the nodes after it. After a failure, do does not wait for readiness.
func (w *walk) do() (isDone bool) {
	defer close(w.steps)
	for range min(w.run.options.Workers, len(w.run.order.steps)) {
		go w.work()
	}
	w.beginNodes()
	w.loop()
	hasFailed := w.run.results.hasFailed(func(*object.Failure) bool { return true })
	if w.run.options.NoWait || hasFailed {
		return !hasFailed
	}
	all := make([]int, len(w.run.order.tasks))
	for i := range all {
		all[i] = i
	}
	isReady := false
	w.await(all, true, func(is bool) { isReady = is })
	w.loop()
	return isReady && w.run.results.areDone()
}

// loop runs until nothing is left to do, or the walk was interrupted and the running steps have ended.
func (w *walk) loop() {
	ended := w.ctx.Done()
	for {
		w.runEvents()
		if w.ctx.Err() != nil || w.isOver {
			ended = nil
			w.interrupt()
		}
		w.handOut()
		if w.busy+w.explains+len(w.parked) == 0 && !w.hasEvents() {
			return
		}
		select {
		case <-w.signal:
		case <-ended:
		}
	}
}

// runEvents handles the queued events, and those that they cause.
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

// post queues an event for the loop.
func (w *walk) post(event func()) {
	w.mu.Lock()
	w.events = append(w.events, event)
	w.mu.Unlock()
	select {
	case w.signal <- struct{}{}:
	default: // the loop was signalled already
	}
}

func (w *walk) takeEvents() []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

func (w *walk) work() {
	for i := range w.steps {
		var did object.TryResult
		isTried := w.ctx.Err() == nil
		began := time.Now()
		if isTried {
			did = w.run.order.steps[i].Do(w.ctx)
		}
		w.post(func() {
			w.busy--
			switch {
			case !isTried:
				w.skip(i)
			case did.Err != nil:
				w.failed(i, did, began)
			case did.Wait != nil:
				w.waits(i, did.Wait)
			default:
				w.forgetFailure(i)
				w.run.done(i, did.Change)
				w.ended(i, true)
			}
		})
	}
}

// failed queues a failed step again after a pause, if another try may help.
func (w *walk) failed(step int, did object.TryResult, began time.Time) {
	isInterrupted := w.ctx.Err() != nil
	if isInterrupted && object.IsInterruption(did.Err) {
		did.Err = object.FailureOf(did.StepID, object.CutOff{Cause: context.Cause(w.ctx)})
	}
	giveUp := func() {
		did.Err.IsFinal = w.ctx.Err() == nil
		w.run.results.failed(step, did.Change)
		w.ended(step, false)
	}
	if isInterrupted || !did.IsRetryable {
		giveUp()
		return
	}
	t := w.triesOf(step, began)
	t.giveUp = giveUp
	t.count++
	pause := max(t.backoff.Step(), did.Pause)
	w.run.results.retrying(step, did.Err, t.count, pause, w.run.cluster.ServerTime(t.began))
	w.queueAfter(pause, step)
}

// forgetFailure drops the last failure of a step, so that skip does not report it.
func (w *walk) forgetFailure(step int) {
	if t := w.tries[step]; t != nil {
		t.giveUp = nil
	}
}

// skip ends a step whose next try the end of the walk has prevented.
func (w *walk) skip(step int) {
	if t := w.tries[step]; t != nil && t.giveUp != nil {
		t.giveUp()
	} else {
		w.ended(step, false)
	}
}

func (w *walk) triesOf(step int, began time.Time) *tries {
	if w.tries[step] == nil {
		w.tries[step] = &tries{began: began, backoff: object.Backoff()}
	}
	return w.tries[step]
}

// doAgain repeats a step whose object was deleted after its apply: at once the first time, and then after growing pauses.
func (w *walk) doAgain(id kinds.ID) {
	step, exists := w.run.order.stepOn(id)
	if !exists || w.ctx.Err() != nil {
		return
	}
	if w.isAgain[step] || !w.run.results.isDone(step) {
		w.isMissing[step] = true // ended calls doAgain again
		return
	}
	w.isAgain[step] = true
	pause := time.Duration(0)
	if w.tries[step] != nil {
		pause = w.tries[step].backoff.Step()
	}
	w.triesOf(step, time.Now())
	w.queueAfter(pause, step)
}

// handOut gives steps to idle workers. A step whose needs are not ready is parked instead.
func (w *walk) handOut() {
	for w.busy < w.run.options.Workers {
		step, exists := w.next()
		if !exists {
			return
		}
		switch {
		case w.isAgain[step]:
			w.start(step)
		case w.run.results.isDone(step): // by the last walk
			w.nodeOf[step].begin(w)
			w.ended(step, true)
		case !w.hasNeeds[step] && w.awaitNeeds(step):
		default:
			w.nodeOf[step].begin(w)
			w.start(step)
		}
	}
}

func (w *walk) start(step int) {
	w.busy++
	w.steps <- step
}

// next takes the next step out of the queues.
func (w *walk) next() (step int, exists bool) {
	queue := &w.continued
	if len(w.continued) == 0 {
		queue = &w.fresh
	}
	if len(*queue) == 0 {
		return 0, false
	}
	step, *queue = (*queue)[0], (*queue)[1:]
	return step, true
}

// beginNodes queues the first steps of nodes that are no longer blocked.
func (w *walk) beginNodes() {
	nodes := w.run.nodes.next()
	if w.ctx.Err() != nil {
		return
	}
	for _, node := range nodes {
		steps := w.run.order.nodes[node]
		n := &nodeWalk{node: node, steps: steps, parts: w.run.order.parts(steps)}
		for _, step := range steps {
			w.nodeOf[step] = n
		}
		w.fresh = append(w.fresh, steps[0])
	}
}

// ended moves the node of a step on: to its next step, the end of the part, or its own end.
func (w *walk) ended(step int, isDone bool) {
	if isDone && w.isMissing[step] {
		delete(w.isMissing, step)
		defer w.doAgain(w.run.order.steps[step].ID().ID)
	}
	if w.isAgain[step] {
		delete(w.isAgain, step)
		w.isOver = w.isOver || !isDone
		return
	}
	n := w.nodeOf[step]
	n.at++
	switch {
	case !isDone:
		n.endPart(w, false)
	case n.at < n.parts[0]:
		w.queue(n)
	default:
		n.awaitPart(w)
	}
}

// queue queues the current step of a node.
func (w *walk) queue(n *nodeWalk) {
	if n.hasBegun {
		w.continued = append(w.continued, n.steps[n.at])
	} else {
		w.fresh = append(w.fresh, n.steps[n.at])
	}
}
