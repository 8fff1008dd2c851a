package clusterversion

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// reasonFailed is the reason of a failure that has none.
const reasonFailed = "UpdatePayloadFailed"

// mostNames is how many objects a line names.
const mostNames = 5

// A failure keeps a release from being applied: one problem, or the common one of several ClusterOperators.
type failure struct {
	reason  string
	summary string // for Progressing: in one line, and short
	message string // for Failing
}

// summarize returns one failure for all problems, which are sorted and without duplicates.
func (b *builder) summarize(failed []ReleaseProblem, isKept bool) failure {
	var all []failure
	for _, alike := range byState(failed) {
		if _, isShared := alike[0].state(); isShared && len(alike) > 1 {
			all = append(all, operatorsFailure(b, alike, isKept))
			continue
		}
		for _, releaseProblem := range alike {
			all = append(all, singleFailure(b, releaseProblem, isKept))
		}
	}
	slices.SortFunc(all, func(a, b failure) int { return cmp.Compare(a.message, b.message) })
	all = slices.CompactFunc(all, func(a, b failure) bool { return a.message == b.message })
	if len(all) == 1 {
		return all[0]
	}
	var messages []string
	for _, item := range all {
		messages = append(messages, item.message)
	}
	return failure{
		reason:  ReasonMultipleErrors,
		summary: all[0].summary + ", and " + printable.Count(len(all)-1, "more error"),
		message: list("Multiple errors are preventing progress", messages),
	}
}

// byState returns ClusterOperators with the same reason together, and each other problem by itself.
func byState(problems []ReleaseProblem) [][]ReleaseProblem {
	var groups [][]ReleaseProblem
	at := map[string]int{}
	for _, p := range problems {
		_, isShared := p.state()
		if index, exists := at[p.Reason]; isShared && exists {
			groups[index] = append(groups[index], p)
			continue
		}
		if isShared {
			at[p.Reason] = len(groups)
		}
		groups = append(groups, []ReleaseProblem{p})
	}
	return groups
}

func singleFailure(b *builder, p ReleaseProblem, isKept bool) failure {
	of := failure{reason: cmp.Or(p.Reason, reasonFailed), message: capitalized(p.sentence()) + p.where()}
	state, isKnown := p.state()
	switch {
	case isKnown && p.isOverdue(isKept, b.seen.Now):
		of.summary = overdue([]ReleaseProblem{p})
	case isKnown:
		of.summary = "the cluster operator " + printable.Line(p.ID.Name) + " " + state.one
	default:
		of.summary = p.summary()
	}
	return of
}

// operatorsFailure returns one failure of several ClusterOperators with the same reason.
func operatorsFailure(b *builder, alike []ReleaseProblem, isKept bool) failure {
	state, _ := alike[0].state()
	var details []string
	for _, p := range alike {
		details = append(details, joined(": ", printable.Line(p.ID.Name), p.detail())+p.where())
	}
	of := failure{
		reason:  pluralReason(alike[0].Reason),
		summary: "the cluster operators " + names(alike) + " " + state.many,
		message: "Cluster operators " + names(alike) + " " + state.many + ": " + strings.Join(few(details), "; "),
	}
	if !slices.ContainsFunc(alike, func(p ReleaseProblem) bool { return !p.isOverdue(isKept, b.seen.Now) }) {
		of.summary = overdue(alike)
	}
	return of
}

// overdue returns the message on ClusterOperators that have failed because their time is over.
func overdue(alike []ReleaseProblem) string {
	return fmt.Sprintf("wait has exceeded %.0f minutes for these operators: %s", failAfter.Minutes(), names(alike))
}

// few returns the first texts, and how many more there are.
func few(texts []string) []string {
	if more := len(texts) - mostLines; more > 0 {
		return append(slices.Clone(texts[:mostLines]), fmt.Sprintf("and %d more", more))
	}
	return texts
}

// names names the objects of problems.
func names(problems []ReleaseProblem) string {
	var all []string
	for _, p := range problems {
		if p.isOperator() {
			all = append(all, printable.Line(p.ID.Name))
		} else {
			all = append(all, p.ID.String())
		}
	}
	return printable.Few(slices.Compact(all), mostNames)
}
