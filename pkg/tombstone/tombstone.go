// Package tombstone says what became of an object that is to go: whether it is gone, is
// terminating and held by what, is still there, or was made anew. It reads that from the
// live object every time and remembers nothing, so that it says the same after a restart.
//
// It deletes nothing, and does not know what was asked of whom: the caller brings the UID
// of the object whose end was asked for. What can't be asked for is not taken for gone.
//
// An object is meant in whatever version, but of one group: the same kind and name in another
// group is another object.
//
// Observe is the call to start from; Changes says when to look again.
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

// A State is what became of an object.
type State string

// The states. Whatever is not known to be another is Unknown.
const (
	Absent      State = "absent"      // gone, or its kind is surely gone
	Terminating State = "terminating" // its end was asked for, by us or by somebody else
	Present     State = "present"     // there, and not on its way out
	Reappeared  State = "reappeared"  // there under another UID than the one whose end was asked for
	Unknown     State = "unknown"     // can't be asked
)

// Contents says what becomes of the objects that are left in a terminating one.
type Contents string

// The Contents.
const (
	Held    Contents = ""        // somebody has to remove what remains, if anything does
	Ending  Contents = "ending"  // what remains goes by itself
	Unclear Contents = "unclear" // it is not known what remains
)

// An Observation is an object as it was found.
type Observation struct {
	State      State
	UID        types.UID // of the object that is there now
	Asked      types.UID // of the one whose end was asked for, if one was ever seen
	Since      time.Time // when the end of a terminating one was asked for
	Finalizers []string  // which hold a terminating one
	Remains    []string  // what a terminating Namespace or definition still has in it
	Contents   Contents  // what becomes of that
	MadeBy     string    // who made one that is present or has reappeared, and when
	Why        string    // why the state is unknown, in one line
}

// IsPending says whether a delete that was asked for may still be under way.
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

// IsHeld says whether a terminating object stays until somebody acts: takes off a finalizer other
// than those of the garbage collector, or removes what is left in the object.
func (o Observation) IsHeld() bool {
	isAwaited := func(finalizer string) bool {
		return finalizer != metav1.FinalizerDeleteDependents && finalizer != metav1.FinalizerOrphanDependents
	}
	return slices.ContainsFunc(o.Finalizers, isAwaited) || len(o.Remains) > 0 && o.Contents == Held
}

// Describe says it to people in one line.
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
		return "made anew by " + o.MadeBy
	default:
		return "not known: " + o.Why
	}
}

// DescribeSince is Describe with the moment at which an object began to terminate instead of its
// age: a text that is the same as long as nothing changes.
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
