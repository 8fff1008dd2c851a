package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/ownership"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
)

// An EventType is what an event tells of.
type EventType string

// What is told while it happens.
const (
	Applied  EventType = "applied"  // an object, or a tombstone: Action says what was done
	BeReady  EventType = "ready"    // an object that was waited for
	Waiting  EventType = "waiting"  // for an object, again and again
	Retrying EventType = "retrying" // after a failure that may heal
	Failing  EventType = "failed"   // for good
	Warned   EventType = "warning"  // by the server, once for each text
	Began    EventType = "began"    // a node
	Ended    EventType = "ended"    // a node; Action says what came of it, unless it is all done

	Adopted   EventType = "adopted"   // fields that other tools had set
	Overruled EventType = "overruled" // fields that others had set otherwise
)

// An Event is one thing that happened.
type Event struct {
	Time    time.Time     `json:"time"`
	Type    EventType     `json:"type"`
	Action  object.Action `json:"action,omitempty"`
	Object  *kinds.ID     `json:"object,omitempty"`
	File    string        `json:"file,omitempty"`
	Node    string        `json:"node,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
	Since   *time.Time    `json:"since,omitempty"` // by the server's clock
	Why     []string      `json:"why,omitempty"`   // of a wait, or a failure: what keeps its pods, and their last log lines

	From []string         `json:"from,omitempty"` // whom the fields were adopted from
	Lost []ownership.Loss `json:"lost,omitempty"` // by those who had set them otherwise

	Seconds float64 `json:"seconds,omitempty"` // that a node took
}

// tell tells of a manifest. Events come one after the other.
func (r *run) tell(m *payload.Manifest, event Event) {
	id := m.ID()
	event.Time, event.Object, event.File, event.Node = r.cluster.Now().UTC(), &id, m.Path, object.NodeName(m)
	r.telling.Lock()
	defer r.telling.Unlock()
	r.options.Tell(event)
}

// done notes that a step is done.
func (r *run) done(i int, change object.Change) {
	change.Manifest = r.order.steps[i].Manifest
	isDeleting := change.Action == object.Pending && r.options.Mode == graph.Update // others look at deletes only
	if isDeleting || slices.Contains([]object.Action{object.Created, object.Configured, object.Recreated, object.Deleted}, change.Action) {
		r.tracker.Changed()
	}
	kind := change.Manifest.GroupVersionKind().GroupKind()
	if wrote := change.Action == object.Created || change.Action == object.Configured || change.Action == object.Recreated; wrote && kinds.Extends(kind) {
		r.applier.Wrote(change.Manifest)
	}
	r.mu.Lock()
	change.Adopted = r.adopted[change.Manifest]
	r.mu.Unlock()
	r.note(i, change)
	if len(change.Lost) > 0 {
		r.applier.AnnounceLosses(change)
	}
	if !change.Manifest.IsTombstone() {
		r.options.Done(change)
	}
}

// note takes in what came of a step, or would, and tells of it.
func (r *run) note(i int, change object.Change) {
	r.mu.Lock()
	r.changes[i] = change
	delete(r.retries, i)
	r.mu.Unlock()
	r.tell(change.Manifest, Event{Type: Applied, Action: change.Action, Message: change.Message})
	if len(change.Lost) > 0 {
		r.tell(change.Manifest, Event{Type: Overruled, Lost: change.Lost, Message: object.LossesInWords(change.Lost)})
	}
}

// warn notes warnings of the server, and tells of each text once.
func (r *run) warn(m *payload.Manifest, warnings []string) {
	for _, text := range warnings {
		r.mu.Lock()
		files, isKnown := r.warnings[text]
		if !slices.Contains(files, m.Path) {
			r.warnings[text] = append(files, m.Path)
		}
		r.mu.Unlock()
		if !isKnown {
			r.tell(m, Event{Type: Warned, Message: printable.Line(text)})
		}
	}
}

// hasAdopted notes from whom fields were taken over, which is only done once: a later try
// finds nothing any more.
func (r *run) hasAdopted(m *payload.Manifest, from []string) {
	r.mu.Lock()
	r.adopted[m] = from
	r.mu.Unlock()
	r.tellAdopted(m, from)
}

func (r *run) tellAdopted(m *payload.Manifest, from []string) {
	r.tell(m, Event{Type: Adopted, From: from, Message: "from " + printable.Line(strings.Join(from, ", "))})
}

// failed notes that a step will not be done.
func (r *run) failed(ctx context.Context, i int, err error) {
	m := r.order.steps[i].Manifest
	failure := object.NewFailure(m, err)
	failure.IsFinal = ctx.Err() == nil
	r.mu.Lock()
	r.changes[i] = object.Change{Manifest: m, Action: object.Failed, Err: failure, Adopted: r.adopted[m]}
	delete(r.retries, i)
	r.mu.Unlock()
	r.tell(m, Event{Type: Failing, Action: object.Failed, Reason: failure.Reason, Message: printable.Line(failure.Err.Error())})
}

// retrying notes that a step has failed, and is tried again.
func (r *run) retrying(i int, err error, attempt int, next time.Duration, began time.Time) {
	m := r.order.steps[i].Manifest
	failure := object.NewFailure(m, err)
	r.mu.Lock()
	r.retries[i] = Wait{ID: failure.ID, File: m.Path, Node: failure.Node, For: printable.Line(failure.Err.Error()), Since: r.cluster.At(began).UTC(), Reason: failure.Reason, IsRetry: true, manifest: m}
	r.mu.Unlock()
	r.tell(m, Event{
		Type: Retrying, Reason: failure.Reason,
		Message: fmt.Sprintf("attempt %d failed, the next is in %s: %s", attempt, next.Round(100*time.Millisecond), printable.Line(failure.Err.Error())),
	})
}

// becameReady tells of what was worth waiting for, or was heard of.
func (r *run) becameReady(m *payload.Manifest, waited time.Duration) {
	r.telling.Lock()
	isHeard := r.heard[m]
	delete(r.heard, m)
	r.telling.Unlock()
	switch {
	case waited >= tellReadyAfter:
		r.tell(m, Event{Type: BeReady, Message: "after " + waited.Round(tellReadyAfter).String()})
	case isHeard:
		r.tell(m, Event{Type: BeReady, Message: "after " + waited.Round(time.Millisecond).String()})
	}
}

// tellReadyAfter is how long something must have been waited for to be worth a line.
const tellReadyAfter = 100 * time.Millisecond
