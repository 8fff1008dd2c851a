package object

import (
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/graph"
)

// This file decides on the action for a manifest, by facts and without requests, for Appliers, Previewers and
// Repairers.

// A decision is the action for an object.
type decision string

const (
	refuse   decision = "refuse"    // another release owns the object
	skip     decision = "skip"      // the object needs no apply
	keepDone decision = "keep done" // a Job that has finished
	keep     decision = "keep"      // the object is create-only, and exists
	create   decision = "create"
	set      decision = "set" // apply the manifest
)

// facts are the facts about an object for a decision.
type facts struct {
	owner        string // the other release that owns the object
	exists       bool
	isTrusted    bool // the metadata from before the run is current
	isUntouched  bool // the object was applied from the same manifest, and has not been written since
	hasFinished  bool // the object is a Job that has finished and was deleted
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

// A deletion is the action for the object of a tombstone.
type deletion string

const (
	alreadyAbsent  deletion = "nothing there"
	noteDeleted    deletion = "note deleted"  // a requested delete is done
	leaveUnknown   deletion = "leave unknown" // the object can't be read, and this run would not delete it
	lookAgain      deletion = "look again"    // the object can't be read, and this run has to delete it
	refuseDeletion deletion = "refuse"        // another release owns the object
	awaitDeletion  deletion = "await delete"  // the object is terminating
	deleteNow      deletion = "delete"        // request its delete
	leaveRemade    deletion = "leave remade"  // the object was deleted, and created again
	leaveUnreached deletion = "leave unreached"
	leaveForUpdate deletion = "leave for the next update"
)

// deletionFacts are the facts about the object of a tombstone.
type deletionFacts struct {
	seen       tombstone.Observation
	requested  record.Tombstone // the recorded delete
	hasDeleted bool             // the version that was applied last has deleted it
	// an install has left it, or if it can't be read, an object of its name, to the next apply
	wasLeft bool
	owner   string // the other release that owns it
	mode    graph.Mode
	leaves  bool // this run deletes nothing: see Options.LeavesDeletes
}

// isRemade reports whether the object was deleted before, and created again.
func (f deletionFacts) isRemade() bool {
	return f.seen.State == tombstone.Reappeared || f.requested.IsBack || f.hasDeleted
}

// deletes reports whether the run deletes the object if it exists.
func (f deletionFacts) deletes() bool {
	return !f.leaves && (f.mode == graph.Update || f.mode == graph.Reconcile && f.wasLeft)
}

func decideDeletion(f deletionFacts) deletion {
	switch {
	case f.seen.State == tombstone.Absent && f.requested.UID == "":
		return alreadyAbsent
	case f.seen.State == tombstone.Absent:
		return noteDeleted
	case f.seen.State == tombstone.Unknown && f.deletes() && !f.hasDeleted:
		return lookAgain
	case f.seen.State == tombstone.Unknown:
		return leaveUnknown
	case f.owner != "":
		return refuseDeletion
	case f.seen.State == tombstone.Terminating:
		return awaitDeletion
	case f.deletes():
		return deleteNow
	case f.isRemade():
		return leaveRemade
	case f.requested.Sent:
		return leaveUnreached
	default:
		return leaveForUpdate
	}
}
