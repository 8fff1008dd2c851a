package apply

import (
	"sync"
	"time"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An event is handled by the loop of a walk, as are the events of the tracker. Exactly one field is set.
type event struct {
	tried     *tried
	resumed   *pendingWait // its wait is over
	diagnosed *diagnosed   // why objects have failed is known
	explained *explained   // why the run waits is known
	noted     *noted       // the state of the run is in the record, or could not be written
	found     *found       // warnings and adopted fields of a try
}

// A tried is a step that a worker has tried, or has not, since the walk was interrupted.
type tried struct {
	step    int
	isTried bool
	began   time.Time
	did     object.TryResult
}

// A diagnosed is a wait that objects have ended which have failed.
type diagnosed struct {
	wait     *pendingWait
	failures []*object.Failure
}

// An explained is the waits of a moment, with the reasons why they wait.
type explained struct{ waits []Wait }

// A noted is a state of the run that was written to the record.
type noted struct {
	run *record.Run
	err error
}

// A found has the warnings and adopted fields that a try has found for the object of a manifest.
type found struct {
	manifest *payload.Manifest
	warnings []string // of the server
	adopted  []string // managers whose fields were adopted
}

// An inbox passes events to the loop of a run. Its senders never wait.
type inbox struct {
	signal chan struct{} // receives an element when there are events

	mu     sync.Mutex
	events []event
}

func newInbox() *inbox { return &inbox{signal: make(chan struct{}, 1)} }

func (i *inbox) put(e event) {
	i.mu.Lock()
	i.events = append(i.events, e)
	i.mu.Unlock()
	select {
	case i.signal <- struct{}{}:
	default: // the loop was signalled already
	}
}

func (i *inbox) take() []event {
	i.mu.Lock()
	defer i.mu.Unlock()
	events := i.events
	i.events = nil
	return events
}

// handler returns the Handler of an Applier whose findings come as events.
func (i *inbox) handler(readiness object.Readiness) object.Handler {
	return object.Handler{
		Readiness: readiness,
		Warned: func(m *payload.Manifest, warnings []string) {
			if len(warnings) > 0 {
				i.put(event{found: &found{manifest: m, warnings: warnings}})
			}
		},
		Adopted: func(m *payload.Manifest, managers []string) {
			i.put(event{found: &found{manifest: m, adopted: managers}})
		},
	}
}
