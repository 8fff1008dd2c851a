package apply

import (
	"errors"
	"time"

	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A parking is a wait of a step, of a node, or of the whole run, and what it is for.
type parking struct {
	step    int       // to continue
	node    *nodeWalk // whose part ends; nil if a step waits
	isAtEnd bool      // all objects are awaited, at the end of the run

	tasks   []int            // whose objects are to be ready
	began   time.Time        // of the wait for them
	objects *await.GroupWait // for objects to be ready; nil for another wait
	timer   *time.Timer      // for a time; nil for none
	until   *object.StepWait // for what the step itself awaits; nil for none
	ended   chan struct{}    // closed when the wait for until is over
}

// queueAfter queues a step after a pause.
func (w *walk) queueAfter(pause time.Duration, step int) {
	p := &parking{step: step}
	p.parkFor(w, pause)
}

// waits parks a step until its wait is over. If the walk ends before, the step is not done, and the report names its
// wait.
func (w *walk) waits(step int, wait *object.StepWait) {
	w.forgetFailure(step)
	waiting, isNew := w.run.results.waiting(step, w.run.order.steps[step].ID(), wait, w.run.cluster.Now())
	if isNew {
		w.run.results.events.waiting(waiting)
	}
	if waited := w.run.cluster.Now().Sub(waiting.Since); w.patience.isOver(time.Now().Add(-waited)) {
		wait.Stop()
		w.giveUp(step, object.TryResult{Change: object.Change{
			StepID: waiting.StepID(), Action: object.Failed,
			Err: object.FailureOf(waiting.StepID(),
				&reason.Error{Reason: object.WorkloadFailed, Err: errors.New("it waits: " + waiting.For)}),
		}})
		return
	}
	p := &parking{step: step, until: wait, ended: make(chan struct{})}
	p.parkFor(w, w.patience.atMost(wait.Pause))
	go func() {
		select {
		case <-wait.Changed:
			w.run.inbox.put(event{woken: p})
		case <-p.ended:
		}
	}()
}

func (p *parking) parkFor(w *walk, pause time.Duration) {
	w.parked[p] = true
	p.timer = time.AfterFunc(pause, func() { w.run.inbox.put(event{woken: p}) })
}

// wake continues a parked step, or ends a wait for objects that has taken too long. The wait may be over already: a
// timer and a change may both end it.
func (p *parking) wake(w *walk) {
	switch {
	case !w.parked[p]:
	case p.objects != nil && !w.patience.isOver(p.began):
		p.timer.Reset(max(time.Millisecond, w.patience.left(p.began)))
	case p.objects != nil:
		p.unpark(w)
		p.diagnose(w, p.unready(w))
	default:
		p.unpark(w)
		w.continued = append(w.continued, p.step)
	}
}

// unpark ends a wait.
func (p *parking) unpark(w *walk) {
	delete(w.parked, p)
	if p.objects != nil {
		w.run.tracker.Cancel(p.objects)
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.until != nil {
		close(p.ended)
		p.until.Stop()
	}
}

// interrupt ends all parked and queued steps. The ends of waits that have come before are handled still.
func (w *walk) interrupt() {
	for p := range w.parked {
		p.unpark(w)
		if p.objects != nil {
			p.endAwait(w, false)
		} else {
			w.skip(p.step)
		}
	}
	for len(w.continued) > 0 {
		step := w.continued[0]
		w.continued = w.continued[1:]
		w.skip(step)
	}
	w.fresh = nil
}

// awaitNeeds parks a step until the objects that it needs are ready, if it needs any.
func (w *walk) awaitNeeds(step int) (isParked bool) {
	needs := w.run.order.needsOf(step)
	if len(needs) == 0 {
		return false
	}
	w.hasNeeds[step] = true
	w.await(needs, &parking{step: step})
	return true
}

// endWait ends a wait for objects. If some have failed, it is found out why before.
func (w *walk) endWait(e await.Event) {
	for p := range w.parked {
		if p.objects != e.Wait {
			continue
		}
		p.unpark(w)
		if len(e.Failed) == 0 {
			p.endAwait(w, true)
			return
		}
		p.diagnose(w, e.Failed)
		return
	}
}

// diagnose finds out why objects are not ready, and then ends the wait for them.
func (p *parking) diagnose(w *walk, objects []await.Object) {
	w.explains++
	go func() {
		w.run.inbox.put(event{diagnosed: &diagnosed{p, w.run.explainer.failuresOf(w.run.requests, objects)}})
	}()
}

// endAwait continues what has waited for objects. If they are not ready, the report names them.
func (p *parking) endAwait(w *walk, isReady bool) {
	switch {
	case p.isAtEnd:
		w.isReady = isReady
	case p.node != nil:
		p.node.endPart(w, isReady)
	case isReady:
		w.continued = append(w.continued, p.step)
	default:
		w.ended(p.step, false)
	}
}

// A nodeWalk is the progress of one node. Its steps are done one after the other, in parts: see order.parts.
type nodeWalk struct {
	node     int
	steps    []int
	parts    []int // the ends of the parts that are not done
	from, at int   // the first step of the current part, and the current step, as indexes of steps
	isBegun  bool  // the current part has begun
	hasBegun bool  // its first part has begun
}

// begin reports that the first step of a part begins.
func (n *nodeWalk) begin(w *walk) {
	if !n.isBegun {
		n.isBegun, n.hasBegun = true, true
		w.run.components.begin(w.run.order.nodeOf(n.steps[n.from]))
	}
}

// endPart goes on to the next part of a node, or ends the node.
func (n *nodeWalk) endPart(w *walk, isDone bool) {
	if n.isBegun {
		w.run.components.end(w.run.order.nodeOf(n.steps[n.from]), outcomeOf(isDone, w.ctx.Err() != nil))
	}
	switch {
	case !isDone:
		w.run.nodes.Done(n.node, graph.Failed)
	case len(n.parts) > 1:
		n.from, n.at, n.parts, n.isBegun = n.parts[0], n.parts[0], n.parts[1:], false
		n.queue(w)
		return
	default:
		w.run.nodes.Done(n.node, graph.OK)
	}
	w.beginNodes()
}

// outcomeOf returns the outcome of a part: "" if it is done. An interrupted part has not failed.
func outcomeOf(isDone, isInterrupted bool) object.Action {
	switch {
	case isDone:
		return ""
	case isInterrupted:
		return object.NotDone
	default:
		return object.Failed
	}
}

// parts returns the ends of the parts of a node: a part is a run of steps with one level and component.
func (o *order) parts(steps []int) []int {
	var ends []int
	for i := range steps {
		if i+1 == len(steps) || o.nodeOf(steps[i]) != o.nodeOf(steps[i+1]) {
			ends = append(ends, i+1)
		}
	}
	return ends
}
