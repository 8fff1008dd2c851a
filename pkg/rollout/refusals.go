package rollout

import (
	"slices"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/precondition"
	"github.com/runlevel/runlevel/pkg/printable"
)

// What a preview finds against an apply, as findings call it.
const (
	RefusedObject   = "RefusedObject"
	UncheckedObject = "UncheckedObject"
)

// PreviewFindings returns the findings of the gate, and what a preview has found against the apply: the objects that the
// cluster would refuse, and those that it can't judge before they are applied. An object that the gate has named is not
// named again.
func (o *Outcome) PreviewFindings() []precondition.CheckFinding {
	found := slices.Clone(o.Findings)
	blocked, named := map[kinds.ID]bool{}, map[kinds.ID]bool{}
	for _, finding := range o.Findings {
		ids := slices.Clone(finding.Objects)
		if finding.Object != nil {
			ids = append(ids, *finding.Object)
		}
		for _, id := range ids {
			blocked[id], named[id] = blocked[id] || finding.Severity == precondition.Blocks, true
		}
	}
	for _, change := range o.Report.Changes {
		finding := precondition.CheckFinding{Object: &change.ID, File: change.Path}
		where := printable.Line(change.Path) + ": " + change.Name()
		in := kinds.ID{Kind: kinds.Namespace.Kind, Name: change.ID.Namespace}
		switch {
		case change.Err != nil && !blocked[change.ID]:
			finding.Check, finding.Severity = RefusedObject, precondition.Fails
			finding.Message, finding.Lifts = where+" is refused: "+printable.Line(change.Err.Err.Error()), "a manifest that the cluster accepts"
		case change.Action == object.NotChecked && !named[change.ID] && !named[in]:
			finding.Check, finding.Severity = UncheckedObject, precondition.Warns
			finding.Message, finding.Lifts = where+" can't be checked before it is applied: "+printable.Line(change.Message), "the apply, which finds it out"
		default:
			continue
		}
		found = append(found, finding)
	}
	return found
}

// IsRefused reports whether the cluster would refuse an object, or the pod of a lifecycle hook, of a preview.
func (o *Outcome) IsRefused() bool {
	return slices.ContainsFunc(o.Report.Changes, func(change object.Change) bool { return change.Err != nil })
}
