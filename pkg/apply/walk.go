package apply

import (
	"context"
	"time"

	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// A walk goes through the graph. One loop hands out steps to workers, as many as may write at a time, and handles
// events: a step was tried, a wait has ended, an object has changed. The schedule knows which steps may begin. A step
// that waits is one of the pendingWaits, and occupies no worker. Only the loop uses the fields.
type walk struct {
	*runScope
	ctx      context.Context
	work     chan int      // steps, to the workers
	reporter *walkReporter // nil in tests of walks
	schedule *schedule
	pending  *pendingWaits
	tries    stepTries
	timeout  *stepTimeout

	hasNeeds  map[int]bool // steps whose needs were awaited
	isAgain   map[int]bool // steps that were done, and are being done again
	isMissing map[int]bool // steps whose object was deleted while a worker had them
	busy      int          // workers that run a step
	isReady   bool         // all objects are ready, at the end
	isOver    bool         // a repeated step has failed, so the walk ends
}

// newWalk returns a walk through the nodes that the last walk has not done.
func newWalk(ctx context.Context, s *runScope) *walk {
	before := s.nodes
	s.nodes = s.order.graph.Walk()
	timeout := newStepTimeout(ctx, s.options.Patience)
	return &walk{
		runScope: s, ctx: ctx, work: make(chan int, s.options.Workers),
		schedule: &schedule{
			ctx: ctx, order: s.order, nodes: s.nodes, before: before, components: s.components,
			nodeOf: map[int]*nodeWalk{},
		},
		pending: &pendingWaits{runScope: s, timeout: timeout, waits: map[*pendingWait]bool{}},
		tries:   stepTries{}, timeout: timeout,
		hasNeeds: map[int]bool{}, isAgain: map[int]bool{}, isMissing: map[int]bool{},
	}
}

// do goes through the graph, and then waits until all objects are ready at the same time. It reports whether all is
// done. A failed node blocks only the nodes after it. After a failure, do does not wait for readiness.
func (w *walk) do() (isDone bool) {
	defer close(w.work)
	for range min(w.options.Workers, len(w.order.steps)) {
		go w.doSteps()
	}
	w.schedule.beginNodes()
	w.loop()
	hasFailed := w.results.hasFailed(func(*object.Failure) bool { return true })
	if w.options.NoWait || hasFailed && !w.timeout.isEnabled() {
		return !hasFailed
	}
	w.awaitAll()
	w.loop()
	return w.isReady && w.results.areDone()
}

// loop runs until no step is left, or the walk was interrupted and the running steps have ended.
func (w *walk) loop() {
	ended := w.ctx.Done()
	reports, notes, states := w.reporter.ticks()
	for {
		for w.handleEvents() { // events may cause other events
		}
		if w.ctx.Err() != nil || w.isOver {
			ended = nil
			w.interrupt()
		}
		w.handOut()
		if w.busy+w.pending.count() == 0 {
			return
		}
		select {
		case <-w.inbox.signal:
		case <-w.tracker.Signal():
			w.reporter.noteChange()
		case <-reports:
			w.reporter.reportWaits()
		case <-notes:
			w.reporter.writeState()
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
	w.reporter.noteChange()
	return true
}

func (w *walk) handle(e event) {
	switch {
	case e.try != nil:
		w.handleTry(e.try)
	case e.waitEnd != nil:
		w.handleWaitEnd(e.waitEnd)
	case e.diagnosis != nil:
		w.handleDiagnosis(e.diagnosis)
	case e.explanation != nil:
		w.reporter.reportExplained(e.explanation)
	case e.write != nil:
		w.reporter.endWrite(e.write)
	default:
		w.results.addFinding(e.finding)
	}
}

// observe handles an event of the tracker.
func (w *walk) observe(e await.Event) {
	switch e.Type {
	case await.Ended:
		w.handleGroupEnd(e)
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
		w.applier.NoteExtended(e.Object.Live)
	case await.Ready:
		w.results.events.reportReady(object.StepOf(e.Object.Manifest), e.Waited)
	case await.Finished:
		w.noteFinished(e.Object.Manifest, e.Object.Live.GetUID())
	case await.Invisible:
		w.results.events.reportWait(w.waitFor(e.Object))
	}
}

// drain handles the events that have come after the walk.
func (w *walk) drain() {
	for _, e := range w.tracker.Events() {
		w.note(e)
	}
	w.jobs.Wait()
	for _, e := range w.inbox.take() {
		if e.finding != nil {
			w.results.addFinding(e.finding)
		}
	}
}

// doSteps is the loop of a worker.
func (w *walk) doSteps() {
	for i := range w.work {
		try := &stepTry{step: i, wasTried: w.ctx.Err() == nil, began: time.Now()}
		if try.wasTried {
			try.result = w.order.steps[i].Do(w.ctx)
		}
		w.inbox.put(event{try: try})
	}
}

// handOut gives steps to idle workers. A step whose needs are not ready waits for them instead.
func (w *walk) handOut() {
	for w.busy < w.options.Workers {
		step, exists := w.schedule.next()
		if !exists {
			return
		}
		switch {
		case w.isAgain[step]:
			w.start(step)
		case w.results.isDone(step): // the last walk has done the step
			w.schedule.beginStep(step)
			w.endStep(step, true)
		case !w.hasNeeds[step] && w.awaitNeeds(step):
		default:
			w.schedule.beginStep(step)
			w.start(step)
		}
	}
}

func (w *walk) start(step int) {
	w.busy++
	w.results.running[step] = true
	w.work <- step
}

// endStep continues the node of a step, or repeats the step if its object was deleted meanwhile.
func (w *walk) endStep(step int, isDone bool) {
	if isDone && w.isMissing[step] {
		delete(w.isMissing, step)
		defer w.doAgain(w.order.steps[step].ID().ID)
	}
	if w.isAgain[step] {
		delete(w.isAgain, step)
		w.isOver = w.isOver || !isDone
		return
	}
	if n := w.schedule.endStep(step, isDone); n != nil {
		w.awaitPart(n)
	}
}
