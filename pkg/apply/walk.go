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
	"github.com/runlevel/runlevel/pkg/kinds"
)

// A walk goes through the graph. One loop hands out steps to workers, as many as may write at a time, and runs
// the events that follow: a step has ended, an object is ready, a pause is over. A step that waits is an entry in
// parked, and takes no worker. Only the loop touches the fields, but for the events.
type walk struct {
	run   *run
	ctx   context.Context
	steps chan int // to the workers

	continued []int             // steps that may begin, of nodes that have begun
	fresh     []int             // first steps of nodes that may begin, after those
	nodes     map[int]*nodeWalk // by step
	tries     map[int]*tries    // by step: those that have failed
	hasNeeds  map[int]bool      // by step: what it needs was awaited
	isAgain   map[int]bool      // by step: it was done, and is being done again
	isMissing map[int]bool      // by step: its object was deleted while a worker had the step
	busy      int               // workers
	explains  int               // failures that are being explained
	parked    map[*parking]bool
	isOver    bool // a step has failed that was done again: the walk has to end

	mu     sync.Mutex
	events []func()
	signal chan struct{} // there are events
}

// tries are the tries of a step that have failed.
type tries struct {
	count   int
	began   time.Time
	backoff wait.Backoff
	giveUp  func() // notes the last failure; nil if there is none
}

// A parking is a step or a node that waits for an event.
type parking struct {
	cancel    func() // of what it waits for
	interrupt func() // what follows if the walk has to end before
}

// newWalk returns a walk through the nodes that no walk before has done.
func newWalk(ctx context.Context, r *run) *walk {
	r.nodes.begin()
	return &walk{
		run: r, ctx: ctx, steps: make(chan int, r.options.Workers), signal: make(chan struct{}, 1),
		nodes: map[int]*nodeWalk{}, tries: map[int]*tries{}, hasNeeds: map[int]bool{}, isAgain: map[int]bool{}, isMissing: map[int]bool{}, parked: map[*parking]bool{},
	}
}

// do goes through the graph, and then waits until everything that was applied is ready, at the same time. It reports
// whether all is done. A node that fails holds up only those that come after it, and nothing is waited for then.
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
	var all []int
	for i := range w.run.order.steps {
		all = append(all, i)
	}
	isReady := false
	w.await(all, func(is bool) { isReady = is })
	w.loop()
	return isReady && !slices.ContainsFunc(all, func(i int) bool { return !w.run.results.isDone(i) })
}

// loop runs until nothing is left to do, or the walk has to end and what is being done has ended.
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
	for len(w.continued) > 0 {
		step := w.continued[0]
		w.continued = w.continued[1:]
		w.skip(step)
	}
	w.fresh = nil
}

// work does steps.
func (w *walk) work() {
	for i := range w.steps {
		var did outcome
		isTried := w.ctx.Err() == nil
		began := time.Now()
		if isTried {
			did = w.run.order.steps[i].Do()
		}
		w.post(func() {
			w.busy--
			switch {
			case !isTried:
				w.skip(i)
			case did.Err != nil:
				w.failed(i, did, began)
			default:
				if w.tries[i] != nil {
					w.tries[i].giveUp = nil
				}
				w.run.done(i, did.Change)
				w.ended(i, true)
			}
		})
	}
}

// failed takes in that a try has failed: the step is tried again after a pause, if that may help.
func (w *walk) failed(step int, did outcome, began time.Time) {
	isInterrupted := w.ctx.Err() != nil
	if isInterrupted && object.IsInterruption(did.Err) {
		did.Err = object.FailureOf(did.StepID, object.CutOff{Cause: context.Cause(w.ctx)})
	}
	giveUp := func() {
		did.Err.IsFinal = w.ctx.Err() == nil
		w.run.results.failed(step, did.Change)
		w.ended(step, false)
	}
	if isInterrupted || !did.isRetryable {
		giveUp()
		return
	}
	t := w.triesOf(step, began)
	t.giveUp = giveUp
	t.count++
	pause := max(t.backoff.Step(), did.pause)
	w.run.results.retrying(step, did.Err, t.count, pause, w.run.cluster.ServerTime(t.began))
	w.queueAfter(pause, step)
}

// skip ends a step that can't be tried any more.
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

// queueAfter queues a step after a pause.
func (w *walk) queueAfter(pause time.Duration, step int) {
	w.park(func(wake func(func())) func() {
		timer := time.AfterFunc(pause, func() { wake(func() { w.continued = append(w.continued, step) }) })
		return func() { timer.Stop() }
	}, func() { w.skip(step) })
}

// doAgain does a step again whose object was deleted after it was applied: at once the first time, and then after
// longer and longer pauses.
func (w *walk) doAgain(id kinds.ID) {
	step := slices.IndexFunc(w.run.order.steps, func(s step) bool { return s.ID().ID == id })
	if step < 0 || w.ctx.Err() != nil {
		return
	}
	if w.isAgain[step] || !w.run.results.isDone(step) {
		w.isMissing[step] = true // for ended
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

// handOut gives steps to workers that have none. Those that wait for objects are parked instead.
func (w *walk) handOut() {
	for w.busy < w.run.options.Workers {
		step, isThere := w.next()
		if !isThere {
			return
		}
		needs := w.run.order.steps[step].Needs()
		switch {
		case w.isAgain[step]:
			w.start(step)
		case w.run.results.isDone(step): // by the walk before
			w.nodes[step].begin(w)
			w.ended(step, true)
		case len(needs) > 0 && !w.hasNeeds[step]:
			w.hasNeeds[step] = true
			w.await(needs, func(isReady bool) {
				if isReady {
					w.continued = append(w.continued, step)
				} else {
					w.ended(step, false) // the report says which it was
				}
			})
		default:
			w.nodes[step].begin(w)
			w.start(step)
		}
	}
}

func (w *walk) start(step int) {
	w.busy++
	w.steps <- step
}

// next takes the step that is to begin out of the queue.
func (w *walk) next() (step int, isThere bool) {
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

// await goes on when the objects of some steps are ready, or one of them never will be.
func (w *walk) await(steps []int, then func(isReady bool)) {
	var objects []kinds.ID
	for _, i := range steps {
		objects = append(objects, w.run.order.steps[i].ID().ID)
	}
	w.park(func(wake func(func())) func() {
		return w.run.tracker.Notify(objects, func(failed []await.Object) {
			wake(func() {
				if len(failed) == 0 {
					then(true)
					return
				}
				w.explains++
				go func() {
					for _, o := range slices.Backward(failed) {
						w.run.explainer.failed(w.run.requests, o)
					}
					w.post(func() {
						w.explains--
						then(false)
					})
				}()
			})
		})
	}, func() { then(false) })
}

// beginNodes queues the first steps of nodes that nothing holds up any more.
func (w *walk) beginNodes() {
	nodes := w.run.nodes.next()
	if w.ctx.Err() != nil {
		return
	}
	for _, node := range nodes {
		steps := w.run.order.graph.Nodes[node].Tasks
		n := &nodeWalk{node: node, steps: steps, parts: w.run.order.parts(steps)}
		for _, step := range steps {
			w.nodes[step] = n
		}
		w.fresh = append(w.fresh, steps[0])
	}
	if w.run.options.Mode == graph.Install && len(nodes) > 0 {
		slices.SortStableFunc(w.fresh, func(a, b int) int { return w.run.order.rank(w.nodes[a].node) - w.run.order.rank(w.nodes[b].node) })
	}
}

// ended takes in that nothing is done about a step any more.
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
	n := w.nodes[step]
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

// queue queues the step at which a node is.
func (w *walk) queue(n *nodeWalk) {
	if n.hasBegun {
		w.continued = append(w.continued, n.steps[n.at])
	} else {
		w.fresh = append(w.fresh, n.steps[n.at])
	}
}
