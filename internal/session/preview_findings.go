package session

import (
	"fmt"
	"slices"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// The checks of the findings of a preview.
const (
	RefusedObject   = "RefusedObject"
	UncheckedObject = "UncheckedObject"
)

// PreviewFindings returns the findings of the gate and those of a preview against the apply: the objects that the
// cluster would refuse, and those that it can't judge before they are applied. An object that the gate has named is not
// named again.
func (o *Outcome) PreviewFindings() []precondition.Finding {
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
	var causes []*previewCause
	for _, change := range o.Report.Changes {
		namespace := kinds.NewID(kinds.Namespace, "", change.ID.Namespace)
		switch {
		case change.Err != nil && !blocked[change.ID]:
			causes = addCause(causes, change, RefusedObject, printable.Line(change.Err.Err.Error()))
		case change.Action == object.NotChecked && !named[change.ID] && !named[namespace]:
			causes = addCause(causes, change, UncheckedObject, printable.Line(change.Message))
		}
	}
	found := slices.Clone(o.Findings)
	for _, cause := range causes {
		found = append(found, cause.finding())
	}
	return found
}

// A previewCause is why objects are refused, or can't be checked. Objects whose texts only differ in their names share
// one.
type previewCause struct {
	check, text, shared string
	first               object.Change
	objects             []kinds.ID
}

func addCause(causes []*previewCause, change object.Change, check, text string) []*previewCause {
	shared := change.ID.Without(text)
	i := slices.IndexFunc(causes, func(cause *previewCause) bool {
		return cause.check == check && cause.shared == shared
	})
	if i < 0 {
		return append(causes, &previewCause{check, text, shared, change, []kinds.ID{change.ID}})
	}
	causes[i].objects = append(causes[i].objects, change.ID)
	return causes
}

// finding returns the finding of a cause, which names the first object and counts the others.
func (c *previewCause) finding() precondition.Finding {
	found := precondition.Finding{Check: c.check, Object: &c.objects[0], File: c.first.Path}
	name := c.first.Name()
	if more := len(c.objects) - 1; more > 0 {
		found.Objects, name = c.objects, fmt.Sprintf("%s and %d more", name, more)
	}
	place := printable.Line(c.first.Path) + ": " + name
	if c.check == RefusedObject {
		found.Severity, found.Resolution = precondition.Fails, "changing the manifest so that the cluster accepts it"
		found.Message = place + ": " + fields.Refuses + c.text
	} else {
		found.Severity, found.Resolution = precondition.Warns, `"runlevel rehearse", or the apply, which finds it out`
		found.Message = place + " can't be checked before the apply: " + c.text
	}
	return found
}

// IsRefused reports whether the cluster would refuse an object, or the pod of a lifecycle hook, of a preview.
func (o *Outcome) IsRefused() bool {
	return slices.ContainsFunc(o.Report.Changes, func(change object.Change) bool { return change.Err != nil })
}
