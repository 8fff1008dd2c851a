package tombstone

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// An EventReason is the reason of an event of Kubernetes about the delete of an object.
type EventReason string

// The reasons of events.
const (
	ReasonRequested        EventReason = "DeleteRequested"
	ReasonStillTerminating EventReason = "StillTerminating"
	ReasonDeleted          EventReason = "Deleted"
	ReasonReappeared       EventReason = "Reappeared"
)

// Event returns an event about the delete of an object, for Cluster.RecordEvent.
func Event(id kinds.ID, uid types.UID, reason EventReason, message string) cluster.ObjectEvent {
	isWarning := reason == ReasonStillTerminating || reason == ReasonReappeared
	return cluster.ObjectEvent{ID: id, UID: uid, Reason: string(reason), IsWarning: isWarning, Message: message}
}
