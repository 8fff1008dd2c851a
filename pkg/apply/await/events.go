package await

import (
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// An EventType is the type of an event.
type EventType int

// The events.
const (
	Extended  EventType = iota // a definition or an APIService is ready; it comes before the ends of the waits for it
	Ready                      // an object has become ready
	Finished                   // a Job has succeeded
	Invisible                  // an object can't be watched; the verdict has the reason
	Missing                    // an object was deleted after it was applied
	Ended                      // a GroupWait has ended
)

// An Event is what a Tracker has observed. Object is empty if a wait has ended.
type Event struct {
	Type   EventType
	Object Object
	Waited time.Duration // until the object was ready
	Wait   *GroupWait
	Failed []Object // of a GroupWait that has ended: the objects that have failed; none if all are ready
}

// Signal returns a channel that receives an element when there are events, or when another verdict has changed.
func (t *Tracker) Signal() <-chan struct{} { return t.signal }

// Events returns the events since the last call, in their order.
func (t *Tracker) Events() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := t.events
	t.events = nil
	return events
}

// emit adds an event about an object.
func (o *tracked) emit(t *Tracker, what EventType) {
	t.events = append(t.events, Event{Type: what, Object: o.Object})
}

// A GroupWait is a wait for some objects: until all are ready at the same time, or one of them has failed.
type GroupWait struct {
	objects         []*tracked
	waiting, failed int
	isAtEnd         bool // see Await
	isOver          bool
}

// Await begins to wait for objects. The event Ended may come at once, and does not come after Cancel.
// By the standard of the cluster-version operator, an install goes on past a degraded ClusterOperator, but is not
// complete before the operator has recovered: isAtEnd is true for the wait at the end of the apply.
func (t *Tracker) Await(ids []kinds.ID, isAtEnd bool) *GroupWait {
	w := &GroupWait{isAtEnd: isAtEnd}
	t.do(func() {
		for _, id := range ids {
			if o := t.known[id]; o != nil && o.state != expected {
				t.startWatching(o)
				w.objects = append(w.objects, o)
				o.waits = append(o.waits, w)
				w.count(w.counts(t, o, o.Verdict), 1)
			}
		}
		w.check(t)
	})
	return w
}

// Cancel ends a wait.
func (t *Tracker) Cancel(w *GroupWait) { t.do(w.drop) }

func (w *GroupWait) count(state ready.ReadyState, by int) {
	switch state {
	case ready.Waiting:
		w.waiting += by
	case ready.Failed:
		w.failed += by
	}
}

// check ends a wait if its objects are ready, or one has failed.
func (w *GroupWait) check(t *Tracker) {
	if w.isOver || w.failed == 0 && w.waiting > 0 {
		return
	}
	ended := Event{Type: Ended, Wait: w}
	for _, o := range w.objects {
		if w.failed > 0 && o.Verdict.State == ready.Failed {
			ended.Failed = append(ended.Failed, o.Object)
		}
	}
	t.events = append(t.events, ended)
	w.drop()
}

// drop ends a wait without an event.
func (w *GroupWait) drop() {
	w.isOver = true
	for _, o := range w.objects {
		o.waits = slices.DeleteFunc(o.waits, func(other *GroupWait) bool { return other == w })
	}
}

// counts returns the state of an object as a wait counts it.
func (w *GroupWait) counts(t *Tracker, o *tracked, verdict ready.Verdict) ready.ReadyState {
	if t.toleratesFailures && verdict.State == ready.Failed {
		return ready.Waiting
	}
	if o.standard == ready.Upstream && verdict.Effect == reason.Report && !w.isAtEnd {
		return ready.Ready
	}
	return verdict.State
}
