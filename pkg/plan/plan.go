// Package plan says what an update from one payload to another does, object by object:
// what is created, changed, deleted or left alone, in the order in which the new
// payload is applied; and what is left behind, because the new payload neither
// applies nor deletes it.
//
// It compares files with files, or a payload with what others have seen of a cluster. It
// asks no cluster itself, and applies nothing.
//
// Compare is the call to start from, and OfCluster the one for a cluster. The Plan they
// return is a plain value; package show writes it for people.
package plan

import (
	"slices"

	"github.com/runlevel/runlevel/pkg/fields"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Plan is what an update does.
type Plan struct {
	From   Release `json:"from"`
	To     Release `json:"to"`
	Update Kind    `json:"update"`
	// Cluster is of the plan of a cluster; nil where two releases are compared.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Counts say how many objects each action is for.
	Counts map[Action]int `json:"counts"`
	// Warnings are what a person must see first, the worst first.
	Warnings []Warning `json:"warnings"`
	// Steps are the manifests of the new release, in the order of the update.
	Steps []Entry `json:"steps"`
	// Absent are the objects of the old release that the new one does not apply, in the
	// order of the old release.
	Absent []Entry `json:"absent"`
}

// A Release is one of the two that are compared.
type Release struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	Hash    string `json:"hash,omitempty"` // of all manifests that take part
}

// An Object says which object is meant, whatever its version. It is a payload.ID for
// machines.
type Object struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String is the object as people write it: "Deployment my-namespace/my-name".
func (o Object) String() string { return payload.ID(o).String() }

// A Place is where a manifest stands in its release.
type Place struct {
	File      string `json:"file"`
	Line      int    `json:"line"`
	Document  int    `json:"document"`
	Level     string `json:"level,omitempty"`
	Component string `json:"component,omitempty"`
}

// An Entry is one object, and what becomes of it.
type Entry struct {
	Object
	Action Action `json:"action"`
	// Why says in a sentence why this is the action, where that isn't plain.
	Why string `json:"why,omitempty"`
	// Old and New are its manifests; nil where a release has none that takes part.
	Old *Place `json:"old,omitempty"`
	New *Place `json:"new,omitempty"`

	// Changes are the fields that differ. Those of Secrets are masked.
	Changes []Change `json:"changes,omitempty"`
	// CreateOnly says that a cluster which has the object keeps it as it is.
	CreateOnly bool `json:"createOnly,omitempty"`
	// Recreated says that the object is deleted and made anew, because some of its
	// changes can't be made otherwise.
	Recreated bool `json:"recreated,omitempty"`
	// Definition is what changes for the objects of a CustomResourceDefinition.
	Definition *Definition `json:"definition,omitempty"`

	// With is what takes an absent object along.
	With *Object `json:"with,omitempty"`
	// RenamedTo is the object that seems to have followed a dropped one: the only other
	// of its kind in a file of the same name.
	RenamedTo *Object `json:"renamedTo,omitempty"`
	// CoveredBy is the Namespace, dropped as well, whose tombstone would take a dropped
	// object along: it needs none of its own.
	CoveredBy *Object `json:"coveredBy,omitempty"`
	// Tombstone is the manifest that would delete a dropped object, in YAML, or in JSON if
	// its own is.
	Tombstone string `json:"tombstone,omitempty"`

	// These are of the plan of a cluster.

	// Unchecked is why the server was not asked what it would make of the object.
	Unchecked string `json:"unchecked,omitempty"`
	// Adopted are the managers whose fields would become the release's.
	Adopted []string `json:"adopted,omitempty"`
	// TakesAlong is what goes with the object, beside itself, if that is deleted.
	TakesAlong *kinds.Tally `json:"takesAlong,omitempty"`
	// Whole is the object as it would be created. Secrets are masked.
	Whole map[string]any `json:"whole,omitempty"`
}

// A Change is a field that differs.
type Change struct {
	fields.Change
	// Refused says that the API server does not allow it.
	Refused bool `json:"refused,omitempty"`
	// Owners are the managers, other than us, that own the field in a cluster, and
	// Overwrites those of them whose value would be lost.
	Owners     []string `json:"owners,omitempty"`
	Overwrites []string `json:"overwrites,omitempty"`
}

// An Action is what becomes of an object.
type Action string

// The actions of steps, which are manifests of the new release.
const (
	Created         Action = "created"
	Included        Action = "included" // created, because filters left it out of the old release and let it in now
	Revived         Action = "revived"  // created, though the old release deletes it
	Changed         Action = "changed"
	Unchanged       Action = "unchanged"
	Deleted         Action = "deleted"
	DeletedAgain    Action = "deleted-again"     // by a tombstone that the old release has, too
	NothingToDelete Action = "nothing-to-delete" // a tombstone of what the old release never had
)

// The actions of what is absent from the new release.
const (
	Dropped    Action = "dropped"     // it stays in the cluster, and nobody looks after it
	LeftOut    Action = "left-out"    // by filters: it stays as well
	TakenAlong Action = "taken-along" // it goes with something that is deleted
	Retired    Action = "retired"     // a tombstone that the new release has no more
)

// The actions that only the plan of a cluster has, beside Created, Changed, Unchanged,
// Deleted and Dropped.
const (
	Rejected  Action = "refused"       // by the cluster: Why says what it has against it
	Unchecked Action = "not-checkable" // before it is done: Why says what is in the way
	Pending   Action = "pending"       // its end was asked for before
	Left      Action = "left"          // a tombstone of what is there, in a mode that deletes nothing
	Kept      Action = "kept"          // it is not to be touched
	NotThere  Action = "not-there"     // a tombstone of what is not there
)

// Actions are all of them, in the order in which they are told.
func Actions() []Action {
	return []Action{
		Rejected, Created, Included, Revived, Changed, Deleted, TakenAlong, Pending, Unchecked, Dropped, LeftOut, Left,
		NothingToDelete, DeletedAgain, Retired, NotThere, Kept, Unchanged,
	}
}

// Place is where the object stands: in the new release if it is there, and else in the
// old one.
func (e Entry) Place() Place {
	switch {
	case e.New != nil:
		return *e.New
	case e.Old != nil:
		return *e.Old
	default:
		return Place{}
	}
}

// IsMoved says that the manifest has come to another level or component, and so to
// another place in the order.
func (e Entry) IsMoved() bool {
	return e.Old != nil && e.New != nil && (e.Old.Level != e.New.Level || e.Old.Component != e.New.Component)
}

// IsIdle says that the two releases do the same about the object, or that it is in the
// cluster as it is to be.
func (e Entry) IsIdle() bool {
	switch e.Action {
	case Unchanged, DeletedAgain, NotThere, Kept:
		return !e.IsMoved()
	default:
		return false
	}
}

// Refused are the changes of an entry that the API server does not allow.
func (e Entry) Refused() []Change {
	var refused []Change
	for _, change := range e.Changes {
		if change.Refused {
			refused = append(refused, change)
		}
	}
	return refused
}

// IsEmpty says that the two releases do the same, or that an apply would do nothing to the
// cluster. What was left behind there before is no difference then.
func (p *Plan) IsEmpty() bool {
	if p.Cluster != nil {
		return !slices.ContainsFunc(p.Steps, Entry.IsDone)
	}
	for _, step := range p.Steps {
		if !step.IsIdle() {
			return false
		}
	}
	return len(p.Absent) == 0
}
