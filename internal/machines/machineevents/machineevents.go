// Package machineevents records the events of machines, each once for each change: a controller reconciles a waiting
// machine for hours, and hundreds of equal events would hide the others. The recorded events are only in memory: after
// a restart the last event is recorded once more.
//
// Start with Recorder.Record.
package machineevents

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// maxNote is the longest note of an event that the API server accepts.
const maxNote = 1024

// An Event is an event of a machine.
type Event struct {
	Type, Reason, Action, Note string
	Cause                      string // is not written, but another one makes it another event
}

// A Recorder records events, unless they are equal to the last one of the same machine and reason.
type Recorder struct {
	Events events.EventRecorder

	mu   sync.Mutex
	last map[types.NamespacedName]lastEvents
}

// lastEvents are the last events of a machine, by their reasons.
type lastEvents struct {
	uid   types.UID
	notes map[string]string
}

// Record records an event of a machine.
func (r *Recorder) Record(machine client.Object, event Event) {
	if r.isNew(machine, event) {
		r.Events.Eventf(machine, nil, event.Type, event.Reason, event.Action, "%s",
			printable.Truncate(event.Note, maxNote))
	}
}

func (r *Recorder) isNew(machine client.Object, event Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(machine)
	last, ok := r.last[key]
	if !ok || last.uid != machine.GetUID() {
		if r.last == nil {
			r.last = map[types.NamespacedName]lastEvents{}
		}
		last = lastEvents{uid: machine.GetUID(), notes: map[string]string{}}
		r.last[key] = last
	}
	note, ok := last.notes[event.Reason]
	last.notes[event.Reason] = event.Note + event.Cause
	return !ok || note != event.Note+event.Cause
}

// Repeat makes the next event of a reason a new one.
func (r *Recorder) Repeat(machine client.Object, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last[client.ObjectKeyFromObject(machine)].notes, reason)
}

// Forget forgets the events of a deleted machine.
func (r *Recorder) Forget(machine types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, machine)
}
