package apply

import (
	"sync"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// An EventType is the type of an event.
type EventType string

// The events.
const (
	Applied  EventType = "applied"  // an object was applied or deleted: Action has the result
	BeReady  EventType = "ready"    // an object that the run waited for is ready
	Waiting  EventType = "waiting"  // the run waits for an object: reported repeatedly
	Retrying EventType = "retrying" // a step has failed, and is tried again
	Failing  EventType = "failed"   // a step has failed for good
	Warned   EventType = "warning"  // a warning of the server, once for each text
	Began    EventType = "began"    // a component of a level
	Ended    EventType = "ended"    // a component of a level; Action is its result, "" if all is done

	Adopted   EventType = "adopted"   // fields of other tools were taken over
	Overruled EventType = "overruled" // fields that other managers had set to other values were overwritten

	Logged EventType = "log" // a line of the log of a hook's pod
)

// StateChanged is the type of an event with the state of the run: see Options.ReportStates. The event is not printed.
const StateChanged = EventType("state")

// An Event reports progress of a run.
type Event struct {
	Time   time.Time     `json:"time"`
	Type   EventType     `json:"type"`
	Action object.Action `json:"action,omitempty"`
	Object *kinds.ID     `json:"object,omitempty"`
	// stage of the object's lifecycle hook, if the event is about the hook
	Hook   string `json:"hook,omitempty"`
	File   string `json:"file,omitempty"`
	Node   string `json:"node,omitempty"`
	Reason string `json:"reason,omitempty"`
	// effect of a wait or a failure on the update, as the cluster-version operator names it
	Effect  reason.Effect `json:"effect,omitempty"`
	Message string        `json:"message,omitempty"`
	Failure string        `json:"-"`                  // error of a retry, without the count of attempts in Message
	Since   *time.Time    `json:"since,omitempty"`    // server time
	IsRetry bool          `json:"retrying,omitempty"` // the wait is for a retry of a failed step
	// reasons of pods that do not become ready, and their last log lines
	Why []string `json:"why,omitempty"`

	From []string             `json:"from,omitempty"` // former managers of adopted fields
	Lost []ownership.Conflict `json:"lost,omitempty"` // overwritten fields, with their former managers

	Seconds float64 `json:"seconds,omitempty"` // the duration of the component

	State *RunState `json:"-"` // set for the event StateChanged
}

// Name names the object or hook of an event; "" if it has none.
func (e Event) Name() string {
	if e.Object == nil {
		return ""
	}
	return e.Object.OrHook(e.Hook)
}

// An emitter passes on the events of a run, one after the other.
type emitter struct {
	now     func() time.Time // returns the server time
	onEvent func(Event)

	mu    sync.Mutex
	waits map[object.StepID]bool // reported waits whose end was not reported
}

func newEmitter(now func() time.Time, onEvent func(Event)) *emitter {
	return &emitter{now: now, onEvent: onEvent, waits: map[object.StepID]bool{}}
}

// close drops later events: the log of a pod may have another line when the run has ended.
func (e *emitter) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.onEvent = func(Event) {}
}

func (e *emitter) emit(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	event.Time = e.now().UTC()
	e.onEvent(event)
}

// emitAbout emits an event about a step.
func (e *emitter) emitAbout(step object.StepID, event Event) {
	event.Object, event.Hook, event.File, event.Node = &step.ID, step.Hook, step.Path, step.Node
	e.emit(event)
}

// reportWait reports a wait.
func (e *emitter) reportWait(wait Wait) {
	e.mu.Lock()
	e.waits[wait.StepID()] = true
	e.mu.Unlock()
	e.emitAbout(wait.StepID(), Event{
		Type:    Waiting,
		Reason:  wait.Reason,
		Effect:  wait.Effect,
		Message: wait.For,
		Since:   &wait.Since,
		IsRetry: wait.IsRetry,
		Why:     wait.Why,
	})
}

// minWait is the shortest wait whose end is reported although the wait itself was not.
const minWait = 100 * time.Millisecond

// reportReady reports the end of the wait for an object.
func (e *emitter) reportReady(step object.StepID, waited time.Duration) {
	e.mu.Lock()
	isReported := e.waits[step]
	delete(e.waits, step)
	e.mu.Unlock()
	switch {
	case waited >= minWait:
		e.emitAbout(step, Event{Type: BeReady, Message: "after " + waited.Round(minWait).String()})
	case isReported:
		e.emitAbout(step, Event{Type: BeReady, Message: "after " + waited.Round(time.Millisecond).String()})
	}
}
