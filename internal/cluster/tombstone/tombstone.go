// Package tombstone observes an object that is to be deleted: whether it is gone, is terminating and held by what,
// is still there, or was created again. The state is read from the live object each time and never remembered, so
// that it is the same after a restart.
//
// It deletes nothing. The caller passes the UID of the object whose delete was requested. An object that can't be
// read is not taken for gone. The same kind and name in another API group is another object.
//
// Observe is the call to start from; Watch says when to observe again.
package tombstone

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
)

// A DeleteState is the state of an object that is to be deleted.
type DeleteState string

// The states of a delete.
const (
	Absent      DeleteState = "absent"      // the object is gone, or its kind is
	Terminating DeleteState = "terminating" // it has a deletionTimestamp, whatever set it
	Present     DeleteState = "present"     // it is there, and not terminating
	Reappeared  DeleteState = "reappeared"  // there is an object with another UID than the one whose delete was requested
	Unknown     DeleteState = "unknown"     // the object can't be read
)

// Contents says what becomes of the objects in a terminating Namespace or CustomResourceDefinition.
type Contents string

// The Contents.
const (
	Held    Contents = ""        // a user or a controller has to remove what remains, if anything does
	Ending  Contents = "ending"  // what remains goes by itself
	Unclear Contents = "unclear" // it is not known what remains
)

// An Observation is the state of an object at a moment.
type Observation struct {
	State      DeleteState
	UID        types.UID // of the object that is there now
	Release    string    // that has it; "" if none has
	Asked      types.UID // of the object whose delete was requested, if it was ever seen
	Since      time.Time // when the delete of a terminating object was requested
	Finalizers []string  // which hold a terminating object
	Remains    []string  // what a terminating Namespace or definition still has in it
	Contents   Contents  // what becomes of that
	MadeBy     string    // the field manager that created an object that is present or has reappeared, and when
	Why        string    // why the state is unknown, in one line
	Err        error     // the same, as it was returned
}

// IsPending returns whether a delete that was requested may not be done.
func (o Observation) IsPending() bool {
	switch o.State {
	case Absent, Reappeared:
		return false
	case Present: // under the UID that was asked about, or else it has reappeared
		return o.Asked != ""
	default:
		return true
	}
}

// IsHeld returns whether a terminating object stays until a user or a controller acts: removes a finalizer other than
// those of the garbage collector, or what is left in the object.
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
		// What was asked for after the caller looked at the clock was asked for just now.
		return o.describeEnd("for " + duration.HumanDuration(max(now.Sub(o.Since), 0)))
	case Present:
		if o.Asked != "" {
			return "still there, and not terminating"
		}
		return "there"
	case Reappeared:
		return "recreated by " + o.MadeBy
	default:
		return "not known: " + o.Why
	}
}

// DescribeSince is like Describe, with the moment at which an object began to terminate instead of its age: the text
// is the same as long as nothing changes.
func (o Observation) DescribeSince() string {
	if o.State != Terminating {
		return o.Describe(o.Since)
	}
	return o.describeEnd("since " + o.Since.UTC().Format(time.RFC3339))
}

// describeEnd says since when an object has been terminating, and why it is not gone.
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
