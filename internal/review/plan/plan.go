// Package plan computes what an update from one payload to another does, object by object:
// which objects are created, changed, deleted or left alone, in the order in which the new
// payload is applied; and which are left behind, because the new payload neither
// applies nor deletes them.
//
// It compares two payloads, or takes the preview of an apply to a cluster. It
// reads no cluster itself, and applies nothing.
//
// Start with Compare, or with ForCluster for a cluster. The Plan they return is a plain value; package show prints it.
package plan

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/runlevel/runlevel/internal/objects/crdchange"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
)

// A Plan is the result of comparing a release with another one, or with a cluster.
type Plan struct {
	From   ReleaseID  `json:"from"`
	To     ReleaseID  `json:"to"`
	Update UpdateKind `json:"update"`
	// Cluster is nil if two releases are compared.
	Cluster *ClusterInfo `json:"cluster,omitempty"`
	// Impact is what users notice first.
	Impact Impact `json:"impact"`
	// Counts are the numbers of objects by their actions.
	Counts map[Action]int `json:"counts"`
	// Warnings need attention before the update, the worst first.
	Warnings []Warning `json:"warnings"`
	// Steps are the manifests of the new release, in the order of the update.
	Steps []ObjectPlan `json:"steps"`
	// Absent are the objects of the old release that the new one does not apply, in the
	// order of the old release.
	Absent []ObjectPlan `json:"absent"`
}

// A ReleaseID identifies one of the two releases.
type ReleaseID struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	Hash    string `json:"hash,omitempty"` // hash of all manifests that take part
}

// A Position is the place of a manifest in its release.
type Position struct {
	File      string `json:"file"`
	Line      int    `json:"line"`
	Document  int    `json:"document"`
	Level     string `json:"level,omitempty"`
	Component string `json:"component,omitempty"`
}

// An ObjectPlan is the plan of one object.
type ObjectPlan struct {
	kinds.ID
	Action Action `json:"action"`
	// Why has the reason of the action in a sentence, if it is not obvious.
	Why string `json:"why,omitempty"`
	// Old and New are its manifests; nil if a release has none for the cluster.
	Old *Position `json:"old,omitempty"`
	New *Position `json:"new,omitempty"`

	// Changes are the fields that differ. Those of Secrets are masked.
	Changes []FieldChange `json:"changes,omitempty"`
	// CreateOnly is true if a cluster that has the object keeps it unchanged.
	CreateOnly bool `json:"createOnly,omitempty"`
	// Recreated is true if the object is deleted and recreated, because some of its
	// changes can't be made otherwise.
	Recreated bool `json:"recreated,omitempty"`
	// Restarts is true if the pods of the workload are replaced.
	Restarts bool `json:"restarts,omitempty"`
	// Hooks are the lifecycle hooks of a created or changed Deployment, in the order of its rollout.
	Hooks []HookPlan `json:"hooks,omitempty"`
	// Definition has the changes that affect the objects of a CustomResourceDefinition.
	Definition *crdchange.Change `json:"definition,omitempty"`

	// Loses are the objects whose data are lost: claims, volumes and custom resources. A definition is one too,
	// before its known objects: users may have made others. LossReason is the reason that the manifest has for that.
	Loses      []kinds.ID `json:"loses,omitempty"`
	LossReason string     `json:"lossReason,omitempty"`

	// With is the object whose deletion deletes an absent object.
	With *kinds.ID `json:"with,omitempty"`
	// RenamedTo is the object that seems to replace a dropped one: the only other
	// of its kind in a file of the same name.
	RenamedTo *kinds.ID `json:"renamedTo,omitempty"`
	// CoveredBy is the dropped Namespace whose tombstone would delete a dropped object as well:
	// the object needs no tombstone of its own.
	CoveredBy *kinds.ID `json:"coveredBy,omitempty"`
	// Tombstone is the manifest that would delete a dropped object, in YAML, or in JSON if
	// its own is. An object with variants for different clusters has one document for each.
	Tombstone string `json:"tombstone,omitempty"`

	// UsedBy are the references of the new release to an object that it deletes, or has dropped.
	UsedBy []ObjectUse `json:"usedBy,omitempty"`

	// The following fields are set in the plan of a cluster only.

	// Unchecked has the reason why there was no dry run of the object.
	Unchecked string `json:"unchecked,omitempty"`
	// Adopted are the managers whose fields would become the release's.
	Adopted []string `json:"adopted,omitempty"`
	// Foreign are fields of other managers that the manifest does not have, and that stay.
	Foreign []fields.ForeignFields `json:"foreign,omitempty"`
	// AlsoDeletes are the objects that are deleted with a deleted object.
	AlsoDeletes *kinds.ObjectCounts `json:"alsoDeletes,omitempty"`
	// Whole is the object as it would be created. Secrets are masked.
	Whole map[string]any `json:"whole,omitempty"`
}

// An ObjectUse is a field of a manifest that names an object.
type ObjectUse struct {
	By    kinds.ID  `json:"by"`
	At    *Position `json:"at"`
	Field string    `json:"field"`
}

// describeUses returns the first reference to an object, and the number of the others.
func describeUses(uses []ObjectUse) string {
	first := uses[0]
	return references.Describe(first.By, fmt.Sprintf("%s:%d", first.At.File, first.At.Line), first.Field, len(uses)-1)
}

// A FieldChange is a field that differs.
type FieldChange struct {
	fields.Difference
	// Refused is true if the API server does not allow the change.
	Refused bool `json:"refused,omitempty"`
	// Owners are the managers, other than Runlevel, that own the field in a cluster.
	// Overwrites are the owners whose value would be lost.
	Owners     []string `json:"owners,omitempty"`
	Overwrites []string `json:"overwrites,omitempty"`
}

// An Action is the effect of an update on an object.
type Action string

// The actions of steps, which are manifests of the new release.
const (
	Created Action = "created"
	// created, because filters left it out of the old release and let it in now
	Included        Action = "included"
	Revived         Action = "revived" // created, though the old release deletes it
	Changed         Action = "changed"
	Unchanged       Action = "unchanged"
	Deleted         Action = "deleted"
	DeletedAgain    Action = "deleted-again"     // a tombstone that the old release has, too
	NothingToDelete Action = "nothing-to-delete" // a tombstone of an object that the old release does not have
)

// The actions of objects that the new release does not apply.
const (
	Dropped     Action = "dropped"      // no release applies the object any more, and it stays in the cluster
	LeftOut     Action = "left-out"     // filters exclude the object, and it stays in the cluster
	DeletedWith Action = "deleted-with" // the object is deleted with its Namespace, definition or owners
	// the object is a test in the new release: it stays in the cluster until the test runs, and replaces it
	MadeTest Action = "made-test"
	Retired  Action = "retired" // a tombstone that the new release no longer has
)

// The actions that only the plan of a cluster has, beside Created, Changed, Unchanged,
// Deleted and Dropped.
const (
	Rejected  Action = "refused"       // the API server refuses the object: Why has its reason
	Unchecked Action = "not-checkable" // no dry run is possible yet: Why has the reason
	Pending   Action = "pending"       // the delete of the object was requested before
	Left      Action = "left"          // a tombstone of an existing object, in a mode that deletes nothing
	Kept      Action = "kept"          // the object is not to be changed
	NotThere  Action = "not-there"     // a tombstone of an object that does not exist
)

// Actions returns all actions, in the order in which they are printed.
func Actions() []Action {
	return []Action{
		Rejected, Created, Included, Revived, Changed, Deleted, DeletedWith, Pending, Unchecked, Dropped, LeftOut, Left,
		NothingToDelete, DeletedAgain, MadeTest, Retired, NotThere, Kept, Unchanged,
	}
}

// Place returns the position of the object in the new release, or in the old one if the new one does
// not have it.
func (o ObjectPlan) Place() Position {
	switch {
	case o.New != nil:
		return *o.New
	case o.Old != nil:
		return *o.Old
	default:
		return Position{}
	}
}

// IsMoved reports whether the manifest has moved to another level or component, and so to
// another position in the order.
func (o ObjectPlan) IsMoved() bool {
	return o.Old != nil && o.New != nil && (o.Old.Level != o.New.Level || o.Old.Component != o.New.Component)
}

// IsNoop reports whether the two releases do the same with the object, or the live object matches the release.
func (o ObjectPlan) IsNoop() bool {
	switch o.Action {
	case Unchanged, DeletedAgain, NotThere, Kept:
		return !o.IsMoved()
	default:
		return false
	}
}

// Refused returns the changes of the object that the API server does not allow.
func (o ObjectPlan) Refused() []FieldChange {
	var refused []FieldChange
	for _, change := range o.Changes {
		if change.Refused {
			refused = append(refused, change)
		}
	}
	return refused
}

// IsEmpty reports whether the two releases do the same, or an apply would not change the
// cluster. Objects that earlier releases have left behind do not count.
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

// An UpdateKind is the kind of an update, by the versions of its two releases.
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

// kindOf returns the kind of an update between two versions.
func kindOf(oldVersion, newVersion string) UpdateKind {
	old, err := version.ParseSemantic(oldVersion)
	if err != nil {
		return Unknown
	}
	next, err := version.ParseSemantic(newVersion)
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
