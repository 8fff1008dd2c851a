package clusterversion

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// The maximum time to wait for an object, as in the cluster-version operator.
const (
	slowAfter              = 30 * time.Minute
	slowAfterMachineConfig = 90 * time.Minute // its ClusterOperator updates all nodes
	failAfter              = 40 * time.Minute // limit for the effect FailAfterInterval
	retriedFor             = 30 * time.Second // a request; about as long as that operator's first attempts take

	machineConfig = "machine-config"
)

// A severity is the effect of a problem on the release, at the moment.
type severity int

const (
	waits   severity = iota // the operator waits for the object
	limited                 // the operator waits for the object, and the release fails if that lasts
	slow                    // the wait is longer than usual
	fails
)

// severityOf returns the severity of a problem. Every problem of a complete release is a failure, except an object that
// is not ready. A failed request is a failure after a while: its retry may succeed.
func (b *builder) severityOf(p ReleaseProblem) severity {
	age := p.age(b.observed.Now)
	isUnready := p.IsWait && p.Effect == ""
	switch {
	case p.IsRetry && age > retriedFor:
		return fails
	case p.IsRetry:
		return waits
	case isUnready || p.Effect == reason.None && !b.wasCompleted:
		if age > p.slowAfter() {
			return slow
		}
		return waits
	case p.Effect == reason.FailAfterInterval && !b.wasCompleted && age <= failAfter:
		return limited
	default:
		return fails
	}
}

// isOverdue reports whether a problem fails because its time is over.
func (b *builder) isOverdue(p ReleaseProblem) bool {
	return p.Effect == reason.FailAfterInterval && !b.wasCompleted && p.age(b.observed.Now) > failAfter
}

// age returns the age of a problem; 0 if its beginning is unknown.
func (p ReleaseProblem) age(now time.Time) time.Duration {
	if p.Since.IsZero() {
		return 0
	}
	return now.Sub(p.Since)
}

func (p ReleaseProblem) slowAfter() time.Duration {
	if p.isOperator() && p.ID.Name == machineConfig {
		return slowAfterMachineConfig
	}
	return slowAfter
}

func (p ReleaseProblem) isOperator() bool { return p.ID.Kind == "ClusterOperator" }

// An operatorState defines the words for a reason of ClusterOperators.
type operatorState struct {
	one, many string
	prefix    string // prefix that repeats the state in messages
}

var operatorStates = map[string]operatorState{
	"ClusterOperatorNoVersions":   {"does not declare expected versions", "do not declare expected versions", ""},
	"ClusterOperatorNotAvailable": {"is not available", "are not available", "it is not available: "},
	"ClusterOperatorDegraded":     {"is degraded", "are degraded", "it is degraded: "},
	"ClusterOperatorUpdating":     {"is updating versions", "are updating versions", ""},
}

// state returns the words for the reason of a problem, and whether ClusterOperators share it.
func (p ReleaseProblem) state() (operatorState, bool) {
	state, isKnown := operatorStates[p.Reason]
	return state, isKnown && p.isOperator()
}

// pluralReason returns the reason of several ClusterOperators with the same one.
func pluralReason(name string) string {
	return strings.Replace(name, "ClusterOperator", "ClusterOperators", 1)
}

// subject returns the object, and its state if its reason names one.
func (p ReleaseProblem) subject() string {
	state, isKnown := p.state()
	switch {
	case isKnown:
		return "cluster operator " + p.objectName() + " " + state.one
	case p.isOperator():
		return "cluster operator " + p.objectName()
	case p.HasObject():
		return p.Name()
	default:
		return ""
	}
}

// objectName returns the name of the object: ClusterOperators have a short one.
func (p ReleaseProblem) objectName() string {
	if p.isOperator() {
		return printable.Line(p.ID.Name)
	}
	return p.ID.String()
}

// detail returns the message without the words of the subject.
func (p ReleaseProblem) detail() string {
	state, _ := p.state()
	text := strings.TrimPrefix(inLine(p.For), state.prefix)
	if p.HasObject() {
		text = strings.TrimPrefix(text, p.ID.String()+": ")
	}
	return text
}

// requestFailures are short descriptions of failed requests, in the words of the cluster-version operator.
var requestFailures = map[string]string{
	"UpdatePayloadResourceNotFound":    "some resources could not be updated",
	"UpdatePayloadResourceConflict":    "some resources could not be updated",
	"UpdatePayloadClusterDown":         "the control plane is down or not responding",
	"UpdatePayloadClusterError":        "the control plane is reporting an internal error",
	"UpdatePayloadClusterOverloaded":   "the control plane is overloaded and is not accepting updates",
	"UpdatePayloadClusterUnauthorized": "could not authenticate to the server",
	"UpdatePayloadResourceForbidden":   "the server is rejecting updates",
	"UpdatePayloadResourceTypeMissing": "a required extension is not available to update",
	"UpdatePayloadResourceInvalid":     "some cluster configuration is invalid",
	precondition.ReasonFailed:          "it may not be safe to apply this update",
}

// longestSummary is the maximum length of a summary, in bytes.
const longestSummary = 160

// summary returns a short description for a table: Failing has the whole message.
func (p ReleaseProblem) summary() string {
	detail := cmp.Or(requestFailures[p.Reason], p.detail())
	return printable.Truncate(joined(": ", p.subject(), detail), longestSummary)
}

// line returns the object and its problem, in one line.
func (p ReleaseProblem) line() string {
	return capitalized(joined(": ", p.subject(), p.detail())) + inBrackets("", p.fileAndTime())
}

// fileAndTime returns the file of the object, and the beginning of the problem, as far as they are known.
func (p ReleaseProblem) fileAndTime() string {
	since := ""
	if !p.Since.IsZero() {
		since = "since " + moment(p.Since)
	}
	return joined(", ", printable.Line(p.File), since)
}

// inBrackets returns the texts in brackets after a space, without the empty ones.
func inBrackets(separator string, texts ...string) string {
	if text := joined(separator, texts...); text != "" {
		return " (" + text + ")"
	}
	return ""
}

// moment returns a time for people. Messages have no ages: they change only if the state changes.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// joined returns the texts with a separator between them, without the empty ones.
func joined(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), separator)
}

// capitalized returns a text with a capital first letter, which must be ASCII.
func capitalized(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// compareProblems orders ClusterOperators before other objects, and those by their kinds and names.
func compareProblems(a, b ReleaseProblem) int {
	switch {
	case a.isOperator() && !b.isOperator():
		return -1
	case b.isOperator() && !a.isOperator():
		return 1
	}
	return cmp.Or(kinds.Compare(a.ID, b.ID), cmp.Compare(a.File, b.File), cmp.Compare(a.Reason, b.Reason),
		cmp.Compare(a.For, b.For))
}

// reasonFailed is the reason of a failure without one.
const reasonFailed = "UpdatePayloadFailed"

// maxNames is the maximum number of objects that a line names.
const maxNames = 5

// A failure is one problem, or the common problem of several ClusterOperators.
type failure struct {
	reason  string
	summary string // a short line for Progressing
	message string // message of Failing
}

// summarize returns one failure for all problems, which are sorted and without duplicates.
func (b *builder) summarize(failed []ReleaseProblem) failure {
	var all []failure
	for _, alike := range groupByState(failed) {
		all = append(all, b.failureOf(alike))
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

// groupByState returns groups of ClusterOperators with the same reason, and of one other problem each.
func groupByState(problems []ReleaseProblem) [][]ReleaseProblem {
	var groups [][]ReleaseProblem
	places := map[string]int{}
	for _, p := range problems {
		_, isShared := p.state()
		if index, exists := places[p.Reason]; isShared && exists {
			groups[index] = append(groups[index], p)
			continue
		}
		if isShared {
			places[p.Reason] = len(groups)
		}
		groups = append(groups, []ReleaseProblem{p})
	}
	return groups
}

// failureOf returns the failure of a group.
func (b *builder) failureOf(alike []ReleaseProblem) failure {
	first := alike[0]
	state, isShared := first.state()
	found := failure{reason: cmp.Or(first.Reason, reasonFailed), summary: first.summary(), message: first.line()}
	if !isShared {
		return found
	}
	found.summary = "the " + first.subject()
	if len(alike) > 1 {
		var details []string
		for _, p := range alike {
			details = append(details, joined(": ", p.objectName(), p.detail())+inBrackets("", p.fileAndTime()))
		}
		clause := "cluster operators " + names(alike) + " " + state.many
		found.reason, found.summary = pluralReason(first.Reason), "the "+clause
		found.message = capitalized(clause) + ": " + strings.Join(few(details), "; ")
	}
	if !slices.ContainsFunc(alike, func(p ReleaseProblem) bool { return !b.isOverdue(p) }) {
		found.summary = fmt.Sprintf("wait has exceeded %.0f minutes for these operators: %s", failAfter.Minutes(),
			names(alike))
	}
	return found
}

// few returns the first texts, and how many more there are.
func few(texts []string) []string {
	if more := len(texts) - maxLines; more > 0 {
		return append(slices.Clone(texts[:maxLines]), fmt.Sprintf("and %d more", more))
	}
	return texts
}

// names names the objects of problems.
func names(problems []ReleaseProblem) string {
	var all []string
	for _, p := range problems {
		all = append(all, p.objectName())
	}
	return printable.Few(slices.Compact(all), maxNames)
}
