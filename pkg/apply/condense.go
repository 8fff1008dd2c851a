package apply

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/reason"
)

// severity orders effects: the gravest is that of all.
var severity = []reason.Effect{reason.Report, reason.None, reason.FailAfterInterval, "", reason.Fail}

// condense makes one error of several, as the cluster-version operator does: operators
// with the same trouble are one, and what is still more than one is MultipleErrors. It
// says everything that each of them said.
func condense(failures []error) error {
	var others []error
	operators := map[string][]*Failure{}
	for _, failure := range failures {
		var one *Failure
		if errors.As(failure, &one) && strings.HasPrefix(one.Reason, "ClusterOperator") {
			operators[one.Reason] = append(operators[one.Reason], one)
		} else {
			others = append(others, failure)
		}
	}
	for _, alike := range operators {
		others = append(others, together(alike))
	}
	if len(others) == 1 {
		return others[0]
	}
	slices.SortFunc(others, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	others = slices.CompactFunc(others, func(a, b error) bool { return a.Error() == b.Error() })
	gravest := reason.Report
	lines := []string{"multiple errors are preventing progress:"}
	for _, other := range others {
		lines = append(lines, "* "+other.Error())
		if effect := effectOf(other); slices.Index(severity, effect) > slices.Index(severity, gravest) {
			gravest = effect
		}
	}
	return &reason.Error{Reason: MultipleErrors, Effect: gravest, Message: strings.Join(lines, "\n")}
}

// together is one error for operators that fail for the same reason.
func together(alike []*Failure) error {
	if len(alike) == 1 {
		return alike[0]
	}
	slices.SortFunc(alike, func(a, b *Failure) int { return cmp.Compare(a.ID.Name, b.ID.Name) })
	var messages []string
	gravest := reason.Report
	for _, one := range alike {
		messages = append(messages, oneLine(one.Err))
		if slices.Index(severity, one.Effect) > slices.Index(severity, gravest) {
			gravest = one.Effect
		}
	}
	plural := strings.Replace(alike[0].Reason, "ClusterOperator", "ClusterOperators", 1)
	return &reason.Error{Reason: plural, Effect: gravest, Message: printable.Count(len(alike), "operator") + ": " + strings.Join(messages, "; ")}
}

// effectOf is what a failure does to an update.
func effectOf(err error) reason.Effect {
	var one *Failure
	if errors.As(err, &one) {
		return one.Effect
	}
	return reason.EffectOf(err)
}
