package keep

import (
	"time"

	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// An EventType is the type of an Event.
type EventType string

// The events.
const (
	Keeping   EventType = "keeping"   // from now on
	Repaired  EventType = "repaired"  // an object, with Action; Lost has the lost values of other managers
	Contested EventType = "contested" // an object whose repairs others revert again and again
	Failing   EventType = "failing"   // an object that can't be repaired; it is tried again
	Recovered EventType = "recovered" // an object that was contested or failing, and matches the release again
	Unwatched EventType = "unwatched" // changes of a kind are not seen
	Watched   EventType = "watched"   // they are again
	Missed    EventType = "missed"    // an object that a resync has repaired, and no watch had shown
	Passed    EventType = "passed"    // a resync is over
)

// An Event is one thing that happened.
type Event struct {
	Time    time.Time            `json:"time"`
	Type    EventType            `json:"type"`
	Action  object.Action        `json:"action,omitempty"`
	Object  *kinds.ID            `json:"object,omitempty"`
	File    string               `json:"file,omitempty"`
	Reason  string               `json:"reason,omitempty"`
	Message string               `json:"message,omitempty"`
	Lost    []ownership.Conflict `json:"lost,omitempty"`
}

// emit calls OnEvent. Events come one after the other.
func (k *Keeper) emit(event Event) {
	if event.Time.IsZero() {
		event.Time = k.cluster.Now().UTC()
	}
	k.emitting.Lock()
	defer k.emitting.Unlock()
	k.options.OnEvent(event)
}
