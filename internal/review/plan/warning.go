package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/crdchange"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Warning needs attention before the update.
type Warning struct {
	Reason   Reason `json:"reason"`
	kinds.ID `json:"object"`
	// Message is a sentence about the object, which it does not name.
	Message string `json:"message"`
}

// A Reason is the kind of a warning.
type Reason string

// The reasons of warnings, the worst first.
const (
	Refused  Reason = "Refused"  // the API server does not allow a change, or refuses the object
	DataLost Reason = "DataLost" // data are deleted: those of claims, or custom resources
	// requests to the object no longer arrive, or those to one of its hosts
	Unreachable Reason = "Unreachable"
	// a version of a CustomResourceDefinition is removed, or not served any more
	VersionRemoved Reason = crdchange.VersionRemoved
	FieldRemoved   Reason = crdchange.FieldRemoved  // its schema loses a field
	FieldRequired  Reason = crdchange.FieldRequired // its schema requires a field
	FieldNarrowed  Reason = crdchange.FieldNarrowed // its schema has another type, or fewer values
	StillUsed      Reason = "StillUsed"             // the object is deleted, and others of the release refer to it
	Contradiction  Reason = "Contradiction"         // the object is applied, and deleted with another one
	AlsoDeletes    Reason = "AlsoDeletes"           // other objects are deleted with it
	Orphan         Reason = "Orphan"                // the object stays, and no release applies it any more
	Overwritten    Reason = "Overwritten"           // fields that other managers have set get other values
	// the object is scaled to the default, unless another manager has scaled it
	ReplicasDropped   Reason = "ReplicasDropped"
	Recreation        Reason = "Recreation"                // the object does not exist for a while
	Revival           Reason = "Revival"                   // an object that the old release deletes is created
	NothingThere      Reason = "NothingThere"              // a tombstone of an object that never existed
	ChangeNotMade     Reason = "ChangeNotMade"             // the object is create-only
	NewStorageVersion Reason = crdchange.NewStorageVersion // stored objects are migrated when they are next written
	NotChecked        Reason = "NotChecked"                // there was no dry run
)

// Reasons returns all reasons, the worst first.
func Reasons() []Reason {
	return []Reason{
		Refused, DataLost, Unreachable, VersionRemoved, FieldRemoved, FieldRequired, FieldNarrowed, StillUsed,
		Contradiction, AlsoDeletes, Orphan, Overwritten, ReplicasDropped, Recreation, Revival, NothingThere,
		ChangeNotMade, NewStorageVersion, NotChecked,
	}
}

// count counts the actions.
func (p *Plan) count() {
	for _, entries := range [][]ObjectPlan{p.Steps, p.Absent} {
		for _, e := range entries {
			p.Counts[e.Action]++
		}
	}
}

// warn collects the warnings: some about several objects, and those about each; and the impact, which depends on them.
func (p *Plan) warn(ofSeveral ...Warning) {
	p.Warnings = append(p.Warnings, ofSeveral...)
	for _, entries := range [][]ObjectPlan{p.Steps, p.Absent} {
		for _, e := range entries {
			p.Warnings = append(p.Warnings, e.warnings()...)
		}
	}
	rank := map[Reason]int{}
	for i, reason := range Reasons() {
		rank[reason] = i
	}
	slices.SortStableFunc(p.Warnings, func(a, b Warning) int { return rank[a.Reason] - rank[b.Reason] })
	p.Impact = p.impact()
}

// contradictions returns warnings of manifests of the new release that would be deleted with an object that it deletes.
func (c *comparer) contradictions(steps []*payload.Manifest, deletions *cascade) []Warning {
	var found []Warning
	for _, m := range steps {
		if by, goes := deletions.parentOf(m); goes && !m.IsTombstone() {
			found = append(found, Warning{Contradiction, m.ID(),
				"the same release deletes " + by.String() + ", and with it this object"})
		}
	}
	return found
}

// refusedObjects returns warnings of objects that the update creates or changes, and that an API server refuses. One
// that stays as it was gets none: it was applied, so the server has taken it.
func refusedObjects(entries []ObjectPlan, manifests []*payload.Manifest,
	refusals map[*payload.Manifest][]fields.Refusal) []Warning {
	var found []Warning
	for i, e := range entries {
		why := fields.RefusalMessages(refusals[manifests[i]])
		isSent := e.Action == Created || e.Action == Included || e.Action == Revived ||
			e.Action == Changed && !e.CreateOnly
		if isSent && len(why) > 0 {
			found = append(found, Warning{Refused, e.ID, fields.Refuses + printable.Few(why, maxListed)})
		}
	}
	return found
}

// warnings returns the warnings about one object.
func (o ObjectPlan) warnings() []Warning {
	var found []Warning
	add := func(reason Reason, format string, args ...any) {
		found = append(found, Warning{reason, o.ID, fmt.Sprintf(format, args...)})
	}
	switch o.Action {
	case Dropped:
		if o.RenamedTo != nil {
			add(Orphan, "%s, beside %s, which seems to follow it", o.Why, o.RenamedTo)
		} else {
			add(Orphan, "%s", o.Why)
		}
	case LeftOut:
		add(Orphan, "%s", o.Why)
	case Revived:
		add(Revival, "%s, and the new one creates it", o.Why)
	case NothingToDelete:
		add(NothingThere, "%s: nothing is deleted", o.Why)
	}
	if o.Action == Deleted && len(o.UsedBy) > 0 {
		add(StillUsed, "it is deleted, and %s", describeUses(o.UsedBy))
	}
	if len(o.Loses) > 0 {
		add(DataLost, "%s", o.describeLoss())
	}
	if refused := o.Refused(); len(refused) > 0 {
		add(Refused, "the API server refuses to change %s", paths(refused))
	}
	if o.Recreated {
		add(Recreation, "it is deleted and recreated: some of its changes can't be made otherwise")
	}
	if o.CreateOnly {
		add(ChangeNotMade, "it is create-only: an existing object is not changed")
	}
	if o.Definition != nil {
		for _, effect := range o.Definition.Effects() {
			add(Reason(effect.Reason), "%s", effect.Message)
		}
	}
	o.warnOfCluster(add)
	return found
}

// describeLoss returns the data that are lost, and the reason that allows it if there is one.
func (o ObjectPlan) describeLoss() string {
	var names []string
	for _, id := range o.Loses {
		if id != o.ID {
			names = append(names, id.String())
		}
	}
	text := "it is deleted, and " + kinds.DataLostOnDelete(o.GroupKind())
	switch {
	case len(names) > 0 && o.GroupKind() == kinds.CustomResourceDefinition:
		text += ", such as " + names[0]
	case len(names) > 0 && o.Action == Changed && !o.Recreated:
		text = "the update deletes " + printable.Few(names, maxListed)
	case len(names) > 0:
		text = "it is deleted, and with it " + printable.Few(names, maxListed)
	}
	if o.LossReason != "" {
		text += ", as " + references.DataLossAnnotation + " allows: " + printable.Line(o.LossReason)
	}
	return text
}

// warnOfCluster adds the warnings that only the plan of a cluster has.
func (o ObjectPlan) warnOfCluster(add func(reason Reason, format string, args ...any)) {
	switch o.Action {
	case Rejected:
		add(Refused, "%s", o.Why)
	case Unchecked:
		add(NotChecked, "%s", o.Why)
	}
	if o.Action == Deleted && kinds.IsContainer(o.GroupKind()) && o.AlsoDeletes != nil && o.AlsoDeletes.Objects > 0 {
		reason := AlsoDeletes
		if o.GroupKind() == kinds.CustomResourceDefinition ||
			slices.ContainsFunc(o.AlsoDeletes.Kinds, func(c kinds.Count) bool {
				return c.Group == "" && c.Kind == kinds.PersistentVolumeClaim.Kind
			}) {
			reason = DataLost
		}
		add(reason, "it is deleted, and %s with it", o.AlsoDeletes)
	}
	var overwritten []string
	for _, change := range o.Changes {
		if len(change.Overwrites) > 0 && !isLastApplied(change) {
			overwritten = append(overwritten,
				fmt.Sprintf("%s (%s)", change.Path, strings.Join(change.Overwrites, ", ")))
		}
	}
	if len(overwritten) > 0 {
		add(Overwritten, "fields that other managers have set are overwritten: %s",
			printable.Few(overwritten, maxListed))
	}
}

// isLastApplied reports whether a change only removes the annotation in which kubectl apply keeps a copy of the
// manifest.
func isLastApplied(change FieldChange) bool {
	const copied = "kubectl.kubernetes.io/last-applied-configuration"
	annotations, _ := change.Old.(map[string]any)
	_, hasCopy := annotations[copied]
	isAlone := change.Path.String() == "metadata.annotations" && len(annotations) == 1 && hasCopy
	return change.New == nil && (isAlone || change.Path.String() == fmt.Sprintf("metadata.annotations[%q]", copied))
}

// maxListed limits the paths that a sentence names.
const maxListed = 5

func paths(changes []FieldChange) string {
	var names []string
	for _, change := range changes {
		names = append(names, change.Path.String())
	}
	return printable.Few(names, maxListed)
}
