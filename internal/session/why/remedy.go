package why

import (
	"fmt"
	"maps"
	"slices"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply"
)

// Remedy returns what completes a run that no process goes on with: another apply, and before that a fix of what would fail
// again: an object or hook that has failed for good, or one whose image can't be pulled; or the removal of fields that other
// managers have set. The details are the diagnoses of objects that are not ready.
func Remedy(run *apply.RunState, details map[kinds.ID][]string) string {
	var broken, foreign []string
	for _, step := range run.Steps() {
		if slices.ContainsFunc(details[step.ID], fields.IsForeign) {
			foreign = append(foreign, nameOf(step))
		}
		if step.Phase == apply.HasFailed || slices.ContainsFunc(details[step.ID], ready.IsImageMissing) {
			broken = append(broken, nameOf(step))
		}
	}
	switch {
	case len(broken) == 0 && len(foreign) > 0:
		return "remove what other managers have added to " + printable.Few(foreign, 1)
	case len(broken) == 0:
		return "apply it again"
	case len(broken) == 1:
		return fmt.Sprintf("fix %s, then apply it again", broken[0])
	default:
		return fmt.Sprintf("fix %s and %s, then apply it again", broken[0], printable.Count(len(broken)-1, "other"))
	}
}

// runRemedy returns what completes the run, by the diagnoses of this object and of the objects that the run waits for.
func runRemedy(f *ObjectFacts) string {
	details := map[kinds.ID][]string{f.Object: f.Pods}
	maps.Copy(details, f.Pending)
	return Remedy(f.Run, details)
}

// missingRemedy returns who creates objects again that were deleted since they were applied. What is the word for them.
func (f *ReleaseFacts) missingRemedy(what string) string {
	switch isHeld := f.Held != nil && !f.Held.IsDead(f.Now); {
	case isHeld && f.Held.Keeps():
		return printable.Line(f.Held.Name) + " makes " + what + " again"
	case isHeld:
		return "the apply that runs does not make " + what + " again, but the next one does"
	case f.NotKept != nil && f.NotKept.Operator != nil:
		return "the operator makes " + what + " again once it runs"
	default:
		return "apply it again"
	}
}
