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
	try         *stepTry
	waitEnd     *pendingWait // a wait whose time is over, or whose event has come
	diagnosis   *waitDiagnosis
	explanation *explanation
	write       *recordWrite
	finding     *finding
}

// A stepTry is the try of a step by a worker.
type stepTry struct {
	step     int
	wasTried bool // false if the walk was interrupted before
	began    time.Time
	result   object.TryResult
}

// A waitDiagnosis contains the failures of the objects that have ended a wait.
type waitDiagnosis struct {
	wait     *pendingWait
	failures []*object.Failure
}

// An explanation contains the waits of the run at one time, with their reasons.
type explanation struct{ waits []Wait }

// A recordWrite is a write of the state of the run to the record.
type recordWrite struct {
	run *record.Run
	err error // nil if the state was written
}

// A finding contains the warnings and the adopted fields of a try for one manifest.
type finding struct {
	manifest *payload.Manifest
	warnings []string // warnings of the server
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

// handler returns a Handler that puts the findings of an Applier into the inbox.
func (i *inbox) handler(readiness object.Readiness) object.Handler {
	return object.Handler{
		Readiness: readiness,
		OnWarnings: func(m *payload.Manifest, warnings []string) {
			if len(warnings) > 0 {
				i.put(event{finding: &finding{manifest: m, warnings: warnings}})
			}
		},
		OnAdopted: func(m *payload.Manifest, managers []string) {
			i.put(event{finding: &finding{manifest: m, adopted: managers}})
		},
	}
}
