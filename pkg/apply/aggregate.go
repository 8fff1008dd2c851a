package apply

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// severity orders effects, the gravest last: several failures have the effect of the gravest.
var severity = []reason.Effect{reason.Report, reason.None, reason.FailAfterInterval, "", reason.Fail}

// operatorReasons is the prefix of the reasons of failing operators.
const operatorReasons = "ClusterOperator"

// plurals are the messages about several operators with the same problem.
var plurals = map[string]string{
	ready.ReasonNoVersions:   "do not declare which versions they are to report",
	ready.ReasonNotAvailable: "are not available",
	ready.ReasonDegraded:     "are degraded",
	ready.ReasonUpdating:     "are updating versions",
}

// aggregate makes one error of several, as the cluster-version operator does: operators
// with the same reason become one error, and several errors are object.MultipleErrors. Its message
// has the message of each error; for objects with one cause, that of the first. Requests that were
// cut off are left out.
func aggregate(failures []error) error {
	var others []error
	operators := map[string][]*object.Failure{}
	for _, failure := range failures {
		var item *object.Failure
		switch {
		case errors.As(failure, new(object.CutOff)):
		case errors.As(failure, &item) && strings.HasPrefix(item.Reason, operatorReasons):
			operators[item.Reason] = append(operators[item.Reason], item)
		default:
			others = append(others, failure)
		}
	}
	for _, alike := range operators {
		others = append(others, together(alike))
	}
	slices.SortFunc(others, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	others = slices.CompactFunc(others, func(a, b error) bool { return a.Error() == b.Error() })
	switch len(others) {
	case 0:
		return nil
	case 1:
		return others[0]
	}
	lines := append([]string{"multiple errors are preventing progress:"}, linesOf(others)...)
	return &reason.Error{Reason: object.MultipleErrors, Effect: gravest(others), Message: strings.Join(lines, "\n")}
}

// maxAlike is the number of failures with the same cause that have a line each.
const maxAlike = 3

// linesOf returns a line for each error, and one line for many failures with the same cause.
func linesOf(errs []error) []string {
	alike := map[string]int{}
	for _, err := range errs {
		if failure, isFailure := err.(*object.Failure); isFailure {
			alike[failure.Cause()]++
		}
	}
	var lines []string
	for _, err := range errs {
		failure, isFailure := err.(*object.Failure)
		switch {
		case !isFailure || alike[failure.Cause()] > 0 && alike[failure.Cause()] <= maxAlike:
			lines = append(lines, "* "+err.Error())
		case alike[failure.Cause()] > 0: // the first of many
			lines = append(lines, "* "+failure.Text(alike[failure.Cause()]-1))
			alike[failure.Cause()] = 0
		}
	}
	return lines
}

// together returns one error for operators that fail for the same reason.
func together(alike []*object.Failure) error {
	slices.SortFunc(alike, func(a, b *object.Failure) int { return cmp.Compare(a.ID.Name, b.ID.Name) })
	alike = slices.CompactFunc(alike, func(a, b *object.Failure) bool { return a.Error() == b.Error() })
	if len(alike) == 1 {
		return alike[0]
	}
	var names, messages []string
	var failures []error
	for _, failure := range alike {
		names, messages, failures = append(names, failure.ID.Name), append(messages, failure.Error()),
			append(failures, failure)
	}
	return &reason.Error{
		Reason: strings.Replace(alike[0].Reason, operatorReasons, operatorReasons+"s", 1), Effect: gravest(failures),
		Message: "cluster operators " + strings.Join(slices.Compact(names), ", ") + " " +
			cmp.Or(plurals[alike[0].Reason], "fail") + ": " + strings.Join(messages, "; "),
	}
}

// gravest returns the gravest effect of some failures.
func gravest(failures []error) reason.Effect {
	worst := reason.Report
	for _, failure := range failures {
		if effect := reason.EffectOf(failure); slices.Index(severity, effect) > slices.Index(severity, worst) {
			worst = effect
		}
	}
	return worst
}
