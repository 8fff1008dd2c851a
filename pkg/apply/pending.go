package apply

import (
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// pendingWaits are the waits of a walk: for a time, for the event of a step, or for objects to be ready. The end of a
// wait comes as an event, of the inbox or of the tracker, and the walk handles it. Only the loop of the walk uses them.
type pendingWaits struct {
	*runScope
	timeout   *stepTimeout
	waits     map[*pendingWait]bool
	diagnoses int // running ones
}

// A pendingWait is a wait of a step, of a node, or of the whole run.
type pendingWait struct {
	step    int       // the step that continues after the wait
	node    *nodeWalk // node whose part ends; nil if a step waits
	isAtEnd bool      // all objects are awaited, at the end of the run

	tasks   []int            // tasks whose objects have to be ready
	began   time.Time        // start of the wait for them
	objects *await.GroupWait // wait for objects to be ready; nil for another wait
	timer   *time.Timer      // timer of a wait for a time; nil for another wait
	until   *object.StepWait // wait of the step itself for an event; nil for another wait
	ended   chan struct{}    // closed when the wait for until is over
}

// count returns the number of waits and running diagnoses.
func (p *pendingWaits) count() int { return len(p.waits) + p.diagnoses }

// pause makes a step wait for some time.
func (p *pendingWaits) pause(step int, pause time.Duration) { p.begin(&pendingWait{step: step}, pause) }

// begin begins a wait that ends after some time at the latest.
func (p *pendingWaits) begin(wait *pendingWait, most time.Duration) {
	p.waits[wait] = true
	wait.timer = time.AfterFunc(most, func() { p.inbox.put(event{waitEnd: wait}) })
}

// awaitEvent makes a step wait for its event.
func (p *pendingWaits) awaitEvent(step int, until *object.StepWait) {
	wait := &pendingWait{step: step, until: until, ended: make(chan struct{})}
	p.begin(wait, p.timeout.atMost(until.Pause))
	go func() {
		select {
		case <-until.Changed:
			p.inbox.put(event{waitEnd: wait})
		case <-wait.ended:
		}
	}()
}

// awaitObjects begins a wait until the objects of some tasks are ready, or one has failed. A ClusterOperator has to
// meet more conditions at the end of the apply: see await.Tracker.Await.
func (p *pendingWaits) awaitObjects(tasks []int, wait *pendingWait) {
	objects := make([]kinds.ID, 0, len(tasks))
	for _, task := range tasks {
		if !p.timeout.isGivenUp[task] {
			objects = append(objects, p.order.tasks[task].ID())
		}
	}
	p.waits[wait], wait.tasks, wait.began = true, tasks, time.Now()
	wait.objects = p.tracker.Await(objects, wait.isAtEnd)
	if p.timeout.isEnabled() {
		wait.timer = time.AfterFunc(p.options.Patience, func() { p.inbox.put(event{waitEnd: wait}) })
	}
}

// of returns the wait for a group of objects; nil if it is over.
func (p *pendingWaits) of(objects *await.GroupWait) *pendingWait {
	for wait := range p.waits {
		if wait.objects == objects {
			return wait
		}
	}
	return nil
}

// cancel ends a wait.
func (p *pendingWaits) cancel(wait *pendingWait) {
	delete(p.waits, wait)
	if wait.objects != nil {
		p.tracker.Cancel(wait.objects)
	}
	if wait.timer != nil {
		wait.timer.Stop()
	}
	if wait.until != nil {
		close(wait.ended)
		wait.until.Stop()
	}
}

// unready returns the objects of a wait that are not ready.
func (p *pendingWaits) unready(wait *pendingWait) []await.Object {
	isAwaited := map[kinds.ID]bool{}
	for _, task := range wait.tasks {
		isAwaited[p.order.tasks[task].ID()] = !p.timeout.isGivenUp[task]
	}
	return slices.DeleteFunc(p.tracker.Waiting(), func(o await.Object) bool { return !isAwaited[o.Manifest.ID()] })
}

// diagnose finds out why objects of a cancelled wait are not ready. The result comes as an event.
func (p *pendingWaits) diagnose(wait *pendingWait, objects []await.Object) {
	p.diagnoses++
	go func() {
		failures := p.explainer.failuresOf(p.requestCtx, objects)
		p.inbox.put(event{diagnosis: &waitDiagnosis{wait, failures}})
	}()
}
