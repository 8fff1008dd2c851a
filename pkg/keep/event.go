package keep

import (
	"time"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/ownership"
)

// An EventType is what an event tells of.
type EventType string

// What is told.
const (
	Keeping   EventType = "keeping"   // from now on
	Repaired  EventType = "repaired"  // an object; Action says what was done, Lost what others had made of it
	Contested EventType = "contested" // an object that others make otherwise again and again
	Failing   EventType = "failing"   // an object that can't be repaired; it is tried again
	Blind     EventType = "blind"     // changes of a kind are not seen
	Sighted   EventType = "sighted"   // they are again
	Missed    EventType = "missed"    // the slow pass has repaired what the watches had not told
	Passed    EventType = "passed"    // the slow pass is over
)

// An Event is one thing that happened.
type Event struct {
	Time    time.Time        `json:"time"`
	Type    EventType        `json:"type"`
	Action  object.Action    `json:"action,omitempty"`
	Object  *kinds.ID        `json:"object,omitempty"`
	File    string           `json:"file,omitempty"`
	Reason  string           `json:"reason,omitempty"`
	Message string           `json:"message,omitempty"`
	Lost    []ownership.Loss `json:"lost,omitempty"`
}

// tell tells of something. Events come one after the other.
func (k *Keeper) tell(event Event) {
	event.Time = k.cluster.Now().UTC()
	k.told.Lock()
	defer k.told.Unlock()
	k.options.Tell(event)
}
