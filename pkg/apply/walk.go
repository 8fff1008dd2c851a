package apply

import (
	"context"
	"time"

	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A walk goes through the graph. One loop hands out steps to workers, as many as may write at a time, and handles
// events: a step was tried, a wait has ended, an object has changed. A step that waits is a pendingWait, and
// occupies no worker. Only the loop uses the fields.
type walk struct {
	*scope
	ctx      context.Context
	before   *graph.Walk   // the last walk; nil if this is the first
	work     chan int      // steps, to the workers
	reporter *walkReporter // nil in tests of walks

	queue     stepQueue
	nodeOf    map[int]*nodeWalk // by step
	tries     map[int]*tries    // failed tries, by step
	hasNeeds  map[int]bool      // steps whose needs were awaited
	isAgain   map[int]bool      // steps that were done, and are being done again
	isMissing map[int]bool      // steps whose object was deleted while a worker had them
	timeout   *stepTimeout
	busy      int // workers that run a step
	explains  int // waits whose failures are being explained
	pending   map[*pendingWait]bool
	isReady   bool // all objects are ready, at the end
	isOver    bool // a repeated step has failed, so the walk ends
}

// newWalk returns a walk through the nodes that the last walk has not done.
func newWalk(ctx context.Context, s *scope) *walk {
	before := s.nodes
	s.nodes = s.order.graph.Walk()
	return &walk{
		scope: s, ctx: ctx, before: before, work: make(chan int, s.options.Workers),
		nodeOf: map[int]*nodeWalk{}, tries: map[int]*tries{}, hasNeeds: map[int]bool{}, isAgain: map[int]bool{},
		isMissing: map[int]bool{}, timeout: newStepTimeout(ctx, s.options.Patience), pending: map[*pendingWait]bool{},
	}
}

// do goes through the graph, and then waits until all objects are ready at the same time. It reports whether all is
// done. A failed node blocks only the nodes after it. After a failure, do does not wait for readiness.
func (w *walk) do() (isDone bool) {
	defer close(w.work)
	for range min(w.options.Workers, len(w.order.steps)) {
		go w.doSteps()
	}
	w.beginNodes()
	w.loop()
	hasFailed := w.results.hasFailed(func(*object.Failure) bool { return true })
	if w.options.NoWait || hasFailed && !w.timeout.isEnabled() {
		return !hasFailed
	}
	all := make([]int, len(w.order.tasks))
	for i := range all {
		all[i] = i
	}
	w.await(all, &pendingWait{isAtEnd: true})
	w.loop()
	return w.isReady && w.results.areDone()
}

// loop runs until no step is left, or the walk was interrupted and the running steps have ended.
func (w *walk) loop() {
	ended := w.ctx.Done()
	reports, notes, states := w.reporter.ticks()
	for {
		for w.handleEvents() { // they may cause others
		}
		if w.ctx.Err() != nil || w.isOver {
			ended = nil
			w.interrupt()
		}
		w.handOut()
		if w.busy+w.explains+len(w.pending) == 0 {
			return
		}
		select {
		case <-w.inbox.signal:
		case <-w.tracker.Signal():
			w.reporter.change()
		case <-reports:
			w.reporter.reportWaits()
		case <-notes:
			w.reporter.note()
		case <-states:
			w.reporter.publish()
		case <-ended:
		}
	}
}

// handleEvents handles the events that have come, and reports whether there were any.
func (w *walk) handleEvents() bool {
	observed, events := w.tracker.Events(), w.inbox.take()
	for _, e := range observed {
		w.observe(e)
	}
	for _, e := range events {
		w.handle(e)
	}
	if len(observed)+len(events) == 0 {
		return false
	}
	w.reporter.change()
	return true
}

func (w *walk) handle(e event) {
	switch {
	case e.tried != nil:
		w.handleTry(e.tried)
	case e.resumed != nil:
		w.resume(e.resumed)
	case e.diagnosed != nil:
		w.explains--
		w.results.addUnready(e.diagnosed.failures...)
		w.endFailed(e.diagnosed.wait, e.diagnosed.failures)
	case e.explained != nil:
		w.reporter.reportExplained(e.explained)
	case e.noted != nil:
		w.reporter.hasNoted(e.noted)
	default:
		w.results.add(e.found)
	}
}

// observe handles an event of the tracker.
func (w *walk) observe(e await.Event) {
	switch e.Type {
	case await.Ended:
		w.endWait(e)
	case await.Missing:
		if w.options.Keeper == nil { // a Keeper creates it again
			w.doAgain(e.Object.Manifest.ID())
		}
	case await.Ready:
		w.timeout.noteReady(e.Object.Manifest.ID())
		w.note(e)
	default:
		w.note(e)
	}
}

// note reports an event of the tracker that does not affect the walk.
func (w *walk) note(e await.Event) {
	switch e.Type {
	case await.Extended:
		w.applier.Extended(e.Object.Live)
	case await.Ready:
		w.results.events.ready(object.StepOf(e.Object.Manifest), e.Waited)
	case await.Finished:
		w.noteFinished(e.Object.Manifest, e.Object.Live.GetUID())
	case await.Invisible:
		w.results.events.waiting(w.waitFor(e.Object))
	}
}

// drain handles the events that have come after the walk.
func (w *walk) drain() {
	for _, e := range w.tracker.Events() {
		w.note(e)
	}
	w.jobs.Wait()
	for _, e := range w.inbox.take() {
		if e.found != nil {
			w.results.add(e.found)
		}
	}
}

// doSteps is the loop of a worker.
func (w *walk) doSteps() {
	for i := range w.work {
		t := &tried{step: i, isTried: w.ctx.Err() == nil, began: time.Now()}
		if t.isTried {
			t.did = w.order.steps[i].Do(w.ctx)
		}
		w.inbox.put(event{tried: t})
	}
}

// handOut gives steps to idle workers. A step whose needs are not ready waits for them instead.
func (w *walk) handOut() {
	for w.busy < w.options.Workers {
		step, exists := w.queue.next()
		if !exists {
			return
		}
		switch {
		case w.isAgain[step]:
			w.start(step)
		case w.results.isDone(step): // by the last walk
			w.beginPart(w.nodeOf[step])
			w.ended(step, true)
		case !w.hasNeeds[step] && w.awaitNeeds(step):
		default:
			w.beginPart(w.nodeOf[step])
			w.start(step)
		}
	}
}

func (w *walk) start(step int) {
	w.busy++
	w.results.running[step] = true
	w.work <- step
}

// A stepQueue has the steps that may begin.
type stepQueue struct {
	continued []int // steps of nodes that have begun
	fresh     []int // first steps of other nodes, which come after them
}

// next removes the next step from the queue.
func (q *stepQueue) next() (step int, exists bool) {
	steps := &q.continued
	if len(q.continued) == 0 {
		steps = &q.fresh
	}
	if len(*steps) == 0 {
		return 0, false
	}
	step, *steps = (*steps)[0], (*steps)[1:]
	return step, true
}
