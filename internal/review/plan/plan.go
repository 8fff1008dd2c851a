// Package plan says what an update from one payload to another does, object by object:
// what is created, changed, deleted or left alone, in the order in which the new
// payload is applied; and what is left behind, because the new payload neither
// applies nor deletes it.
//
// It compares files with files, or a payload with what others have seen of a cluster. It
// asks no cluster itself, and applies nothing.
//
// Compare is the call to start from, and ForCluster the one for a cluster. The Plan they
// return is a plain value; package show writes it for people.
package plan

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
)

// A Plan is what an update does.
type Plan struct {
	From   ReleaseID  `json:"from"`
	To     ReleaseID  `json:"to"`
	Update UpdateKind `json:"update"`
	// Cluster is of the plan of a cluster; nil where two releases are compared.
	Cluster *ClusterInfo `json:"cluster,omitempty"`
	// Counts say how many objects each action is for.
	Counts map[PlannedAction]int `json:"counts"`
	// Warnings are what a person must see first, the worst first.
	Warnings []UpdateWarning `json:"warnings"`
	// Steps are the manifests of the new release, in the order of the update.
	Steps []ObjectPlan `json:"steps"`
	// Absent are the objects of the old release that the new one does not apply, in the
	// order of the old release.
	Absent []ObjectPlan `json:"absent"`
}

// A ReleaseID is one of the two that are compared.
type ReleaseID struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	Hash    string `json:"hash,omitempty"` // of all manifests that take part
}

// A Position is where a manifest stands in its release.
type Position struct {
	File      string `json:"file"`
	Line      int    `json:"line"`
	Document  int    `json:"document"`
	Level     string `json:"level,omitempty"`
	Component string `json:"component,omitempty"`
}

// An ObjectPlan is what an update does to one object.
type ObjectPlan struct {
	kinds.ID
	Action PlannedAction `json:"action"`
	// Why says in a sentence why this is the action, where that isn't plain.
	Why string `json:"why,omitempty"`
	// Old and New are its manifests; nil where a release has none that takes part.
	Old *Position `json:"old,omitempty"`
	New *Position `json:"new,omitempty"`

	// Changes are the fields that differ. Those of Secrets are masked.
	Changes []FieldChange `json:"changes,omitempty"`
	// CreateOnly says that a cluster which has the object keeps it as it is.
	CreateOnly bool `json:"createOnly,omitempty"`
	// Recreated says that the object is deleted and recreated, because some of its
	// changes can't be made otherwise.
	Recreated bool `json:"recreated,omitempty"`
	// Hooks are the lifecycle hooks of a Deployment that is created or changed, in the order of its rollout.
	Hooks []HookPlan `json:"hooks,omitempty"`
	// Definition is what changes for the objects of a CustomResourceDefinition.
	Definition *DefinitionChange `json:"definition,omitempty"`

	// With is the object whose deletion deletes an absent object.
	With *kinds.ID `json:"with,omitempty"`
	// RenamedTo is the object that seems to have followed a dropped one: the only other
	// of its kind in a file of the same name.
	RenamedTo *kinds.ID `json:"renamedTo,omitempty"`
	// CoveredBy is the Namespace, dropped as well, whose tombstone would delete a dropped
	// object, too: the object needs none of its own.
	CoveredBy *kinds.ID `json:"coveredBy,omitempty"`
	// Tombstone is the manifest that would delete a dropped object, in YAML, or in JSON if
	// its own is. An object with variants for different clusters has one document for each.
	Tombstone string `json:"tombstone,omitempty"`

	// UsedBy are the references of the new release to an object that it deletes, or has dropped.
	UsedBy []ObjectUse `json:"usedBy,omitempty"`

	// These are of the plan of a cluster.

	// Unchecked is why the server was not asked what it would make of the object.
	Unchecked string `json:"unchecked,omitempty"`
	// Adopted are the managers whose fields would become the release's.
	Adopted []string `json:"adopted,omitempty"`
	// TakesAlong is what goes with the object, beside itself, if that is deleted.
	TakesAlong *kinds.ObjectCounts `json:"takesAlong,omitempty"`
	// Whole is the object as it would be created. Secrets are masked.
	Whole map[string]any `json:"whole,omitempty"`
}

// An ObjectUse is a field of a manifest that names an object.
type ObjectUse struct {
	By    kinds.ID  `json:"by"`
	At    *Position `json:"at"`
	Field string    `json:"field"`
}

// describeUses says who refers to an object first, and how many others do.
func describeUses(uses []ObjectUse) string {
	first := uses[0]
	return references.Describe(first.By, fmt.Sprintf("%s:%d", first.At.File, first.At.Line), first.Field, len(uses)-1)
}

// A FieldChange is a field that differs.
type FieldChange struct {
	fields.Difference
	// Refused says that the API server does not allow it.
	Refused bool `json:"refused,omitempty"`
	// Owners are the managers, other than us, that own the field in a cluster, and
	// Overwrites those of them whose value would be lost.
	Owners     []string `json:"owners,omitempty"`
	Overwrites []string `json:"overwrites,omitempty"`
}

// A PlannedAction is what becomes of an object.
type PlannedAction string

// The actions of steps, which are manifests of the new release.
const (
	Created         PlannedAction = "created"
	Included        PlannedAction = "included" // created, because filters left it out of the old release and let it in now
	Revived         PlannedAction = "revived"  // created, though the old release deletes it
	Changed         PlannedAction = "changed"
	Unchanged       PlannedAction = "unchanged"
	Deleted         PlannedAction = "deleted"
	DeletedAgain    PlannedAction = "deleted-again"     // by a tombstone that the old release has, too
	NothingToDelete PlannedAction = "nothing-to-delete" // a tombstone of what the old release never had
)

// The actions of what is absent from the new release.
const (
	Dropped    PlannedAction = "dropped"     // it stays in the cluster, and no release applies it any more
	LeftOut    PlannedAction = "left-out"    // by filters: it stays as well
	TakenAlong PlannedAction = "taken-along" // it goes with something that is deleted
	Retired    PlannedAction = "retired"     // a tombstone that the new release has no more
)

// The actions that only the plan of a cluster has, beside Created, Changed, Unchanged,
// Deleted and Dropped.
const (
	Rejected  PlannedAction = "refused"       // by the cluster: Why says what it has against it
	Unchecked PlannedAction = "not-checkable" // before it is done: Why says what is in the way
	Pending   PlannedAction = "pending"       // its end was asked for before
	Left      PlannedAction = "left"          // a tombstone of what is there, in a mode that deletes nothing
	Kept      PlannedAction = "kept"          // it is not to be touched
	NotThere  PlannedAction = "not-there"     // a tombstone of what is not there
)

// Actions are all of them, in the order in which they are told.
func Actions() []PlannedAction {
	return []PlannedAction{
		Rejected, Created, Included, Revived, Changed, Deleted, TakenAlong, Pending, Unchecked, Dropped, LeftOut, Left,
		NothingToDelete, DeletedAgain, Retired, NotThere, Kept, Unchanged,
	}
}

// Place is where the object stands: in the new release if it is there, and else in the
// old one.
func (e ObjectPlan) Place() Position {
	switch {
	case e.New != nil:
		return *e.New
	case e.Old != nil:
		return *e.Old
	default:
		return Position{}
	}
}

// IsMoved says that the manifest has come to another level or component, and so to
// another place in the order.
func (e ObjectPlan) IsMoved() bool {
	return e.Old != nil && e.New != nil && (e.Old.Level != e.New.Level || e.Old.Component != e.New.Component)
}

// IsNoop reports whether the two releases do the same with the object, or the cluster has it as the release does.
func (e ObjectPlan) IsNoop() bool {
	switch e.Action {
	case Unchanged, DeletedAgain, NotThere, Kept:
		return !e.IsMoved()
	default:
		return false
	}
}

// Refused are the changes of an entry that the API server does not allow.
func (e ObjectPlan) Refused() []FieldChange {
	var refused []FieldChange
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
		return !slices.ContainsFunc(p.Steps, ObjectPlan.needsApply)
	}
	for _, step := range p.Steps {
		if !step.IsNoop() {
			return false
		}
	}
	return len(p.Absent) == 0
}

// An UpdateKind is what an update is, by the versions of its two releases.
type UpdateKind string

// The kinds of updates.
const (
	Patch     UpdateKind = "patch"
	Minor     UpdateKind = "minor"
	Major     UpdateKind = "major"
	Same      UpdateKind = "same"
	Downgrade UpdateKind = "downgrade"
	Unknown   UpdateKind = "unknown" // one of the releases has no version
)

// kindOf judges two versions.
func kindOf(from, to string) UpdateKind {
	old, err := version.ParseSemantic(from)
	if err != nil {
		return Unknown
	}
	next, err := version.ParseSemantic(to)
	switch {
	case err != nil:
		return Unknown
	case next.LessThan(old):
		return Downgrade
	case !old.LessThan(next):
		return Same
	case next.Major() != old.Major():
		return Major
	case next.Minor() != old.Minor():
		return Minor
	default:
		return Patch
	}
}
