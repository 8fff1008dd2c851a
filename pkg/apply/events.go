package apply

import (
	"sync"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// An EventType is what an event is about.
type EventType string

// The events.
const (
	Applied  EventType = "applied"  // an object, or a tombstone: Action is what was done
	BeReady  EventType = "ready"    // an object that was waited for
	Waiting  EventType = "waiting"  // for an object, again and again
	Retrying EventType = "retrying" // after a failure, as another try may succeed
	Failing  EventType = "failed"   // for good
	Warned   EventType = "warning"  // by the server, once for each text
	Began    EventType = "began"    // a node
	Ended    EventType = "ended"    // a node; Action is its result, unless it is all done

	Adopted   EventType = "adopted"   // fields that other tools had set
	Overruled EventType = "overruled" // fields that others had set otherwise

	Logged EventType = "log" // a line of the log of a hook's pod
)

// An Event is one thing that happened.
type Event struct {
	Time    time.Time     `json:"time"`
	Type    EventType     `json:"type"`
	Action  object.Action `json:"action,omitempty"`
	Object  *kinds.ID     `json:"object,omitempty"`
	Hook    string        `json:"hook,omitempty"` // of the object, if the event is about its lifecycle hook
	File    string        `json:"file,omitempty"`
	Node    string        `json:"node,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Effect  reason.Effect `json:"effect,omitempty"` // of a wait or a failure on the update, in the words of the cluster-version operator
	Message string        `json:"message,omitempty"`
	Failure string        `json:"-"`                  // of a retry: what has failed, without the attempt that Message counts
	Since   *time.Time    `json:"since,omitempty"`    // by the server's clock
	IsRetry bool          `json:"retrying,omitempty"` // of a wait: it has failed, and is tried again
	Why     []string      `json:"why,omitempty"`      // of a wait, or a failure: what keeps its pods, and their last log lines

	From []string             `json:"from,omitempty"` // whom the fields were adopted from
	Lost []ownership.Conflict `json:"lost,omitempty"` // by those who had set them otherwise

	Seconds float64 `json:"seconds,omitempty"` // that a node took
}

// Name names in words what an event is about; "" if that is no object.
func (e Event) Name() string {
	if e.Object == nil {
		return ""
	}
	return e.Object.OrHook(e.Hook)
}

// An emitter passes on the events of a run, one after the other.
type emitter struct {
	now     func() time.Time // by the server's clock
	onEvent func(Event)

	mu    sync.Mutex
	waits map[object.StepID]bool // waits that were reported, and whose end was not
}

func newEmitter(now func() time.Time, onEvent func(Event)) *emitter {
	return &emitter{now: now, onEvent: onEvent, waits: map[object.StepID]bool{}}
}

// close has nothing passed on any more: the log of a pod may have another line when the run has ended.
func (e *emitter) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.onEvent = func(Event) {}
}

// emit passes on an event.
func (e *emitter) emit(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	event.Time = e.now().UTC()
	e.onEvent(event)
}

// about passes on an event about a step.
func (e *emitter) about(step object.StepID, event Event) {
	event.Object, event.Hook, event.File, event.Node = &step.ID, step.Hook, step.Path, step.Node
	e.emit(event)
}

// waiting reports a wait, unless it has ended since it was looked up.
func (e *emitter) waiting(wait Wait, hasEnded func(Wait) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if hasEnded(wait) {
		return
	}
	e.waits[wait.step] = true
	e.onEvent(Event{
		Time: e.now().UTC(), Type: Waiting, Object: &wait.ID, Hook: wait.Hook, File: wait.File, Node: wait.Node,
		Reason: wait.Reason, Effect: wait.Effect, Message: wait.For, Since: &wait.Since, IsRetry: wait.IsRetry, Why: wait.Why,
	})
}

// minWait is how long a wait must have taken for its end to be reported, if the wait itself was not.
const minWait = 100 * time.Millisecond

// ready reports that an object is ready that was waited for.
func (e *emitter) ready(step object.StepID, waited time.Duration) {
	e.mu.Lock()
	isReported := e.waits[step]
	delete(e.waits, step)
	e.mu.Unlock()
	switch {
	case waited >= minWait:
		e.about(step, Event{Type: BeReady, Message: "after " + waited.Round(minWait).String()})
	case isReported:
		e.about(step, Event{Type: BeReady, Message: "after " + waited.Round(time.Millisecond).String()})
	}
}
