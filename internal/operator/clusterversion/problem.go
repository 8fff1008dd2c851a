package clusterversion

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// How long an object may be waited for, as in the cluster-version operator.
const (
	slowAfter              = 30 * time.Minute
	slowAfterMachineConfig = 90 * time.Minute // its ClusterOperator updates all nodes
	failAfter              = 40 * time.Minute // with the effect FailAfterInterval
	refusedFor             = 30 * time.Second // by the API server: about as long as that operator's first attempts take

	machineConfig = "machine-config"
)

// A severity is the effect of a problem on the release, at the moment.
type severity int

const (
	waits   severity = iota // it is waited for
	limited                 // it is waited for, and fails if it stays so
	slow                    // it has been waited for longer than is usual
	fails
)

// severity returns the severity of a problem. For a release that is kept in place, every problem is a failure except an
// object that is not ready. A request that fails and is tried again may succeed soon: it is a failure after a while.
func (p ReleaseProblem) severity(isKept bool, now time.Time) severity {
	isUnready := p.IsWait && p.Effect == ""
	switch {
	case p.IsRetry && p.age(now) > refusedFor:
		return fails
	case p.IsRetry:
		return waits
	case isUnready || p.Effect == reason.None && !isKept:
		if p.age(now) > p.slowAfter() {
			return slow
		}
		return waits
	case p.Effect == reason.FailAfterInterval && !isKept && p.age(now) <= failAfter:
		return limited
	default:
		return fails
	}
}

// isOverdue reports whether a problem fails because its time is over.
func (p ReleaseProblem) isOverdue(isKept bool, now time.Time) bool {
	return p.Effect == reason.FailAfterInterval && !isKept && p.age(now) > failAfter
}

// age returns the age of a problem; 0 if its beginning is not known.
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

func (p ReleaseProblem) isOperator() bool {
	return p.ID.Kind == "ClusterOperator"
}

// An operatorState has the words for a reason of ClusterOperators.
type operatorState struct {
	one, many string
	prefix    string // of messages that repeat it
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

// pluralReason returns the reason of several ClusterOperators that have the same one.
func pluralReason(name string) string {
	return strings.Replace(name, "ClusterOperator", "ClusterOperators", 1)
}

// subject returns the object, and its state if that is known by its reason.
func (p ReleaseProblem) subject() string {
	state, isKnown := p.state()
	switch {
	case isKnown:
		return "cluster operator " + printable.Line(p.ID.Name) + " " + state.one
	case p.isOperator():
		return "cluster operator " + printable.Line(p.ID.Name)
	case p.HasObject():
		return p.Name()
	default:
		return ""
	}
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

// longestSummary is the longest summary of a problem in a table, in bytes.
const longestSummary = 160

// summary returns a short description for a table: Failing has the whole message.
func (p ReleaseProblem) summary() string {
	detail := p.detail()
	if known, isKnown := requestFailures[p.Reason]; isKnown {
		detail = known
	}
	return printable.Truncate(joined(": ", p.subject(), detail), longestSummary)
}

// sentence returns the object and its problem, in one line.
func (p ReleaseProblem) sentence() string { return joined(": ", p.subject(), p.detail()) }

// where returns the place of a problem in brackets.
func (p ReleaseProblem) where() string { return inBrackets("", p.place()) }

// place returns the file of the object, and the beginning of the problem, as far as they are known.
func (p ReleaseProblem) place() string {
	since := ""
	if !p.Since.IsZero() {
		since = "since " + moment(p.Since)
	}
	return joined(", ", printable.Line(p.File), since)
}

// inBrackets returns the texts that are not empty, in brackets after a space.
func inBrackets(separator string, texts ...string) string {
	if text := joined(separator, texts...); text != "" {
		return " (" + text + ")"
	}
	return ""
}

// moment returns a time for people. A message must not change while nothing does, so none has an age in it.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// joined returns the texts that are not empty, with a separator between them.
func joined(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), separator)
}

// capitalized returns a text as the beginning of a sentence. Texts begin with words of ours, or with kinds.
func capitalized(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// compareProblems orders ClusterOperators before other objects, and those by their kinds and names.
func compareProblems(a, b ReleaseProblem) int {
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)),
		kinds.Compare(a.ID, b.ID), cmp.Compare(a.File, b.File), cmp.Compare(a.Reason, b.Reason),
		cmp.Compare(a.For, b.For),
	)
}

func rank(p ReleaseProblem) int {
	if p.isOperator() {
		return 0
	}
	return 1
}
