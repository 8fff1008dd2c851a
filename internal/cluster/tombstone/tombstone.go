// Package tombstone observes an object whose delete is planned or requested: whether it is absent, is terminating and
// held by finalizers, still exists, or was created again. The state is read from the live object each time and never
// cached, so that it is the same after a restart.
//
// It deletes nothing. The caller passes the UID of the object whose delete was requested. An object that can't be
// read does not count as deleted. The same kind and name in another API group is another object.
//
// Watch signals when to observe again. Start with Observe.
package tombstone

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A DeleteState is the state of an object whose delete is requested or planned.
type DeleteState string

// The states of a delete.
const (
	Absent      DeleteState = "absent"      // the object does not exist, or its kind is not served
	Terminating DeleteState = "terminating" // it has a deletionTimestamp, no matter who deleted it
	Present     DeleteState = "present"     // it exists, and is not terminating
	Reappeared  DeleteState = "reappeared"  // an object exists with another UID than the one whose delete was requested
	Unknown     DeleteState = "unknown"     // the object can't be read
)

// Contents is the state of the objects in a terminating Namespace or CustomResourceDefinition.
type Contents string

// The Contents.
const (
	Held    Contents = ""        // a user or a controller has to remove the remaining objects, if there are any
	Ending  Contents = "ending"  // the remaining objects will go without action
	Unclear Contents = "unclear" // it is not known which objects remain
)

// An Observation is the state of an object at one time.
type Observation struct {
	State      DeleteState
	UID        types.UID // UID of the live object
	Release    string    // release of the live object; "" if it has none
	Requested  types.UID // UID of the object whose delete was requested, if known
	Since      time.Time // time when the delete of a terminating object was requested
	Finalizers []string  // finalizers of a terminating object
	Remains    []string  // the objects that are left in a terminating Namespace or definition
	Contents   Contents  // the state of those objects
	MadeBy     string    // the creator and the creation time of a present or reappeared object
	Why        string    // why the state is unknown, in one line
	Err        error     // the error behind Why
}

// IsPending reports whether a requested delete may not be done.
func (o Observation) IsPending() bool {
	switch o.State {
	case Absent, Reappeared:
		return false
	case Present: // an object with another UID is Reappeared
		return o.Requested != ""
	default:
		return true
	}
}

// IsHeld reports whether a terminating object stays until a user or a controller removes a finalizer other than
// those of the garbage collector, or the objects that are left in it.
func (o Observation) IsHeld() bool {
	isAwaited := func(finalizer string) bool {
		return finalizer != metav1.FinalizerDeleteDependents && finalizer != metav1.FinalizerOrphanDependents
	}
	return slices.ContainsFunc(o.Finalizers, isAwaited) || len(o.Remains) > 0 && o.Contents == Held
}

// Describe returns the state for people, in one line.
func (o Observation) Describe(now time.Time) string {
	switch o.State {
	case Absent:
		return "gone"
	case Terminating:
		// A delete that was requested after now was requested just now.
		return o.describeEnd("for " + printable.Age(now, o.Since))
	case Present:
		if o.Requested != "" {
			return "still there, and not terminating"
		}
		return "there"
	case Reappeared:
		return "recreated by " + o.MadeBy
	default:
		return "not known: " + o.Why
	}
}

// DescribeSince is like Describe, with the time at which an object began to terminate instead of its age: the text
// is the same as long as the state is.
func (o Observation) DescribeSince() string {
	if o.State != Terminating {
		return o.Describe(o.Since)
	}
	return o.describeEnd("since " + o.Since.UTC().Format(time.RFC3339))
}

// describeEnd describes since when an object has been terminating, and why it still exists.
func (o Observation) describeEnd(since string) string {
	text := "terminating " + since
	switch len(o.Finalizers) {
	case 0:
	case 1:
		text += ", held by finalizer " + o.Finalizers[0]
	default:
		text += ", held by finalizers " + strings.Join(o.Finalizers, ", ")
	}
	if len(o.Remains) > 0 {
		text += fmt.Sprintf(" (%s)", strings.Join(o.Remains, "; "))
	}
	return text
}

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

// removers describe which controllers remove Kubernetes' own finalizers, and when.
var removers = map[string]string{
	metav1.FinalizerDeleteDependents: "the garbage collector removes it when all objects that " +
		"this one owns are deleted",
	metav1.FinalizerOrphanDependents: "the garbage collector removes it when nothing is owned by the object any more",
	"kubernetes.io/pvc-protection": "the controller manager removes it when no Pod uses " +
		"the claim",
	"kubernetes.io/pv-protection":      "the controller manager removes it when no claim is bound to the volume",
	"batch.kubernetes.io/job-tracking": "the Job controller removes it when it has counted the Pod",
	"service.kubernetes.io/load-balancer-cleanup": "the cloud's controller removes it when the load " +
		"balancer is deleted",
	"snapshot.storage.kubernetes.io/pvc-as-source-protection": "the snapshot controller removes it when no " +
		"snapshot is made of the claim",
}

// FinalizerRemover returns which controller removes a finalizer, and when.
func FinalizerRemover(finalizer string) string {
	if remover := removers[finalizer]; remover != "" {
		return remover
	}
	return "its controller removes it"
}

// IsForeignFinalizer reports whether a finalizer is not one of Kubernetes' own. Its controller may have been
// uninstalled.
func IsForeignFinalizer(finalizer string) bool { return removers[finalizer] == "" }

// FinalizerSetters returns the field managers that have set the finalizers of an object, by finalizer.
func FinalizerSetters(object metav1.Object) map[string]string {
	setters := map[string]string{}
	for _, entry := range object.GetManagedFields() {
		if entry.FieldsV1 == nil {
			continue
		}
		for _, finalizer := range object.GetFinalizers() {
			if strings.Contains(entry.FieldsV1.GetRawString(), fmt.Sprintf(`"v:\"%s\""`, finalizer)) {
				setters[finalizer] = printable.Line(entry.Manager)
			}
		}
	}
	return setters
}
