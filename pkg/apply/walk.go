package apply

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A walk goes through the graph. One loop hands out steps to workers, as many as may write at a time, and handles
// events: a step was tried, a wait has ended, an object has changed. A step that waits is an entry in parked, and takes
// no worker. Only the loop uses the fields.
type walk struct {
	run    *run
	ctx    context.Context
	before *graph.Walk // the last walk; nil if this is the first
	steps  chan int    // to the workers

	continued []int             // queue of the steps of nodes that have begun
	fresh     []int             // queue of the first steps of other nodes, after continued
	nodeOf    map[int]*nodeWalk // by step
	tries     map[int]*tries    // failed tries, by step
	hasNeeds  map[int]bool      // steps whose needs were awaited
	isAgain   map[int]bool      // steps that were done, and are being done again
	isMissing map[int]bool      // steps whose object was deleted while a worker had them
	patience  *patience
	busy      int // workers that run a step
	explains  int // waits whose failures are being explained
	parked    map[*parking]bool
	isReady   bool // all objects are, at the end
	isOver    bool // a repeated step has failed, so the walk ends

	reporter *reporter // nil in tests of walks
}

// tries are the failed tries of a step.
type tries struct {
	count   int
	began   time.Time
	backoff wait.Backoff
	last    *object.TryResult // the last failure; nil if there is none
}

// newWalk returns a walk through the nodes that the last walk has not done.
func newWalk(ctx context.Context, r *run) *walk {
	before := r.nodes
	r.nodes = r.order.graph.Walk()
	return &walk{
		run: r, ctx: ctx, before: before, steps: make(chan int, r.options.Workers),
		nodeOf: map[int]*nodeWalk{}, tries: map[int]*tries{}, hasNeeds: map[int]bool{}, isAgain: map[int]bool{},
		isMissing: map[int]bool{}, patience: newPatience(ctx, r.options.Patience), parked: map[*parking]bool{},
	}
}

// do goes through the graph, and then waits until all objects are ready at the same time. It reports whether all is
// done. A failed node holds up only the nodes after it. After a failure, do does not wait for readiness.
func (w *walk) do() (isDone bool) {
	defer close(w.steps)
	for range min(w.run.options.Workers, len(w.run.order.steps)) {
		go w.work()
	}
	w.beginNodes()
	w.loop()
	hasFailed := w.run.results.hasFailed(func(*object.Failure) bool { return true })
	if w.run.options.NoWait || hasFailed && !w.patience.goesOn() {
		return !hasFailed
	}
	all := make([]int, len(w.run.order.tasks))
	for i := range all {
		all[i] = i
	}
	w.await(all, &parking{isAtEnd: true})
	w.loop()
	return w.isReady && w.run.results.areDone()
}

// loop runs until nothing is left to do, or the walk was interrupted and the running steps have ended.
func (w *walk) loop() {
	ended := w.ctx.Done()
	reports, notes, states := w.reporter.ticks()
	for {
		for w.handleEvents() { // which may cause others
		}
		if w.ctx.Err() != nil || w.isOver {
			ended = nil
			w.interrupt()
		}
		w.handOut()
		if w.busy+w.explains+len(w.parked) == 0 {
			return
		}
		select {
		case <-w.run.inbox.signal:
		case <-w.run.tracker.Signal():
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
	observed, events := w.run.tracker.Events(), w.run.inbox.take()
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
	case e.woken != nil:
		e.woken.wake(w)
	case e.diagnosed != nil:
		w.explains--
		w.run.results.addUnready(e.diagnosed.failures...)
		e.diagnosed.parking.endFailed(w, e.diagnosed.failures)
	case e.explained != nil:
		w.reporter.reportExplained(e.explained)
	case e.noted != nil:
		w.reporter.hasNoted(e.noted)
	default:
		w.run.results.add(e.found)
	}
}

// observe handles an event of the tracker.
func (w *walk) observe(e await.Event) {
	switch e.Type {
	case await.Ended:
		w.endWait(e)
	case await.Missing:
		if w.run.options.Keeper == nil { // else the run does not write it again
			w.doAgain(e.Object.Manifest.ID())
		}
	default:
		if e.Type == await.Ready {
			w.patience.noteReady(e.Object.Manifest.ID())
		}
		w.run.observe(e)
	}
}

func (w *walk) work() {
	for i := range w.steps {
		t := &tried{step: i, isTried: w.ctx.Err() == nil, began: time.Now()}
		if t.isTried {
			t.did = w.run.order.steps[i].Do(w.ctx)
		}
		w.run.inbox.put(event{tried: t})
	}
}

// handleTry handles the result of a try.
func (w *walk) handleTry(t *tried) {
	w.busy--
	delete(w.run.results.running, t.step)
	switch {
	case !t.isTried:
		w.skip(t.step)
	case t.did.Err != nil:
		w.failed(t.step, t.did, t.began)
	case t.did.Wait != nil:
		w.waits(t.step, t.did.Wait)
	default:
		w.forgetFailure(t.step)
		if !w.isAgain[t.step] { // else something deletes its object again and again
			w.patience.progress = time.Now()
		}
		w.run.done(t.step, t.did.Change)
		w.ended(t.step, true)
	}
}

// failed queues a failed step again after a pause, if another try may help.
func (w *walk) failed(step int, did object.TryResult, began time.Time) {
	isInterrupted, t := w.ctx.Err() != nil, w.triesOf(step, began)
	if isInterrupted && object.IsInterruption(did.Err) {
		did.Err = object.FailureOf(did.StepID, object.CutOff{Cause: context.Cause(w.ctx)})
	}
	if isInterrupted || !did.IsRetryable || w.patience.isOver(t.began) {
		w.giveUp(step, did)
		return
	}
	t.last = &did
	t.count++
	pause := max(t.backoff.Step(), did.Pause)
	w.run.results.retrying(step, did.Err, t.count, pause, w.run.cluster.ServerTime(t.began))
	w.queueAfter(pause, step)
}

// giveUp ends a step that has failed.
func (w *walk) giveUp(step int, did object.TryResult) {
	did.Err.IsFinal = w.ctx.Err() == nil
	w.run.results.failed(step, did.Change)
	w.patience.isGivenUp[w.run.order.taskOf[step]] = true
	w.ended(step, w.patience.goesOn())
}

// forgetFailure drops the last failure of a step, so that skip does not report it.
func (w *walk) forgetFailure(step int) {
	if t := w.tries[step]; t != nil {
		t.last = nil
	}
}

// skip ends a step whose next try the end of the walk has prevented.
func (w *walk) skip(step int) {
	if t := w.tries[step]; t != nil && t.last != nil {
		w.giveUp(step, *t.last)
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

// doAgain repeats a step whose object was deleted after its apply: at once the first time, and then after growing
// pauses.
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
	w.run.results.running[step] = true
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

// beginNodes queues the first steps of nodes that are no longer blocked, except for those that the last walk has done.
func (w *walk) beginNodes() {
	for nodes := w.run.nodes.Ready(); len(nodes) > 0; nodes = w.run.nodes.Ready() {
		for _, node := range nodes {
			if w.before != nil && w.before.State(node) == graph.OK {
				w.run.nodes.Done(node, graph.OK)
			} else if w.ctx.Err() == nil {
				w.queueNode(node)
			}
		}
	}
}

func (w *walk) queueNode(node int) {
	steps := w.run.order.nodes[node]
	n := &nodeWalk{node: node, steps: steps, parts: w.run.order.parts(steps)}
	for _, step := range steps {
		w.nodeOf[step] = n
	}
	w.fresh = append(w.fresh, steps[0])
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
		n.queue(w)
	default:
		n.awaitPart(w)
	}
}

// awaitPart waits, in an update, until all objects of a part are ready. A node may have several parts, since
// consecutive levels of one component each share a node.
func (n *nodeWalk) awaitPart(w *walk) {
	if w.run.options.Mode != graph.Update || w.run.options.NoWait {
		n.endPart(w, true)
		return
	}
	tasks := w.run.order.tasksOf(n.steps[:n.parts[0]])
	waits := slices.DeleteFunc(tasks, func(task int) bool { return w.run.order.isUnawaited[task] })
	w.await(waits, &parking{node: n})
}

// await parks until the objects of some tasks are ready, or one of them has failed. A ClusterOperator has to meet more
// conditions at the end of the apply: see await.Tracker.Await.
func (w *walk) await(tasks []int, p *parking) {
	objects := make([]kinds.ID, 0, len(tasks))
	for _, task := range tasks {
		if !w.patience.isGivenUp[task] {
			objects = append(objects, w.run.order.tasks[task].ID())
		}
	}
	w.parked[p], p.tasks, p.began = true, tasks, time.Now()
	p.objects = w.run.tracker.Await(objects, p.isAtEnd)
	if w.patience.goesOn() {
		p.timer = time.AfterFunc(w.run.options.Patience, func() { w.run.inbox.put(event{woken: p}) })
	}
}

// queue queues the current step of a node.
func (n *nodeWalk) queue(w *walk) {
	if n.hasBegun {
		w.continued = append(w.continued, n.steps[n.at])
	} else {
		w.fresh = append(w.fresh, n.steps[n.at])
	}
}
