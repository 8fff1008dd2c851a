package object

import (
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/graph"
)

// What is done about a manifest is decided here, of facts and without requests, for Appliers, Previewers and Repairers
// alike.

// A decision is what is to be done about an object.
type decision string

const (
	refuse   decision = "refuse"    // another release has it
	skip     decision = "skip"      // it needs no apply
	keepDone decision = "keep done" // a Job that has run
	keep     decision = "keep"      // it is there, and only ever made
	create   decision = "create"
	set      decision = "set" // apply its manifest
)

// facts are what is known of an object before anything is done about it.
type facts struct {
	owner        string // the other release that has it
	exists       bool
	isTrusted    bool // what was seen before the first apply is its current state
	isUntouched  bool // it was applied from the same manifest, and not written since
	hasFinished  bool // it is a Job that has run to its end, and is gone
	isCreateOnly bool
}

func decide(f facts) decision {
	switch {
	case f.owner != "":
		return refuse
	case f.isUntouched:
		return skip
	case f.hasFinished:
		return keepDone
	case f.isCreateOnly && f.exists && f.isTrusted:
		return keep
	case f.isCreateOnly:
		return create
	default:
		return set
	}
}

// gather finds out the facts of an object that was looked at. Whether it is untouched does not count where its
// definition will be another one.
func (a *Applier) gather(o *liveObject, isUntouchedEnough bool) facts {
	if owner := a.otherOwner(o.head); owner != "" {
		return facts{owner: owner}
	}
	return facts{
		exists: o.exists, isTrusted: a.trusts(o.head), isCreateOnly: o.Manifest.IsCreateOnly(),
		isUntouched: isUntouchedEnough && a.isUntouched(o.Manifest, o.head, o.exists),
		hasFinished: !o.exists && o.GroupVersionKind().GroupKind() == kinds.Job && a.options.Journal.hasFinished(o.Manifest),
	}
}

// A deletion is what is to be done about the object of a tombstone.
type deletion string

const (
	nothingThere   deletion = "nothing there"
	noteGone       deletion = "note gone"     // a delete that was asked for is done
	leaveUnknown   deletion = "leave unknown" // it can't be read, and this run would not delete it
	lookAgain      deletion = "look again"    // it can't be read, and this run is to delete it
	refuseDeletion deletion = "refuse"        // another release has it
	awaitGone      deletion = "await gone"    // it is terminating
	deleteNow      deletion = "delete"        // its end is asked for
	leaveRemade    deletion = "leave remade"  // it was deleted, and made again
	leaveUnreached deletion = "leave unreached"
	leaveForUpdate deletion = "leave for the next update"
)

// deletionFacts are what is known of the object of a tombstone.
type deletionFacts struct {
	seen       tombstone.Observation
	asked      record.Tombstone // the delete that the record knows of
	hasDeleted bool             // the version that was applied last has deleted it
	wasLeft    bool             // an install has left it to be deleted by the next apply, or if it can't be read, one of its name
	owner      string           // the other release that has it
	mode       graph.Mode
}

// isRemade reports whether the object was deleted before, and made again.
func (f deletionFacts) isRemade() bool {
	return f.seen.State == tombstone.Reappeared || f.asked.IsBack || f.hasDeleted
}

// deletes reports whether the run deletes the object if it is there.
func (f deletionFacts) deletes() bool {
	return f.mode == graph.Update || f.mode == graph.Reconcile && f.wasLeft
}

func decideDeletion(f deletionFacts) deletion {
	switch {
	case f.seen.State == tombstone.Absent && f.asked.UID == "":
		return nothingThere
	case f.seen.State == tombstone.Absent:
		return noteGone
	case f.seen.State == tombstone.Unknown && f.deletes() && !f.hasDeleted:
		return lookAgain
	case f.seen.State == tombstone.Unknown:
		return leaveUnknown
	case f.owner != "":
		return refuseDeletion
	case f.seen.State == tombstone.Terminating:
		return awaitGone
	case f.deletes():
		return deleteNow
	case f.isRemade():
		return leaveRemade
	case f.asked.Sent:
		return leaveUnreached
	default:
		return leaveForUpdate
	}
}
