package clusterversion

import (
	"cmp"
	"fmt"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// setReleaseAccepted sets ReleaseAccepted: Unknown while a release is being accepted. For an image that is tried again,
// or retrieved again after a restart, it keeps its status until the outcome is known.
func (b *builder) setReleaseAccepted() {
	requested := b.seen.Acceptance
	if applied := b.seen.Applied; applied != nil && requested.Release.Version == "" &&
		requested.Release.Image == applied.Release.Image {
		requested.Release.Version = applied.Release.Version
	}
	switch {
	case requested.Phase == "":
	case requested.Err != nil:
		b.set(ReleaseAccepted, configv1.ConditionFalse, string(requested.Phase), requested.message())
	case requested.Phase == Accepted:
		b.set(ReleaseAccepted, configv1.ConditionTrue, string(requested.Phase), withUnverified(b, requested.message()))
	case isDecided(b, requested):
	default:
		b.set(ReleaseAccepted, configv1.ConditionUnknown, string(requested.Phase), requested.message())
	}
}

// notVerified begins the part of a message on a missing verification.
const notVerified = "; not verified: "

// withUnverified returns a message with the part on a missing verification that the condition already has: it is not
// known any more after a restart.
func withUnverified(b *builder, message string) string {
	if before := b.find(ReleaseAccepted); before != nil && strings.HasPrefix(before.Message, message+notVerified) {
		return before.Message
	}
	return message
}

// isDecided reports whether the condition already has the outcome for the image.
func isDecided(b *builder, requested Acceptance) bool {
	before := b.find(ReleaseAccepted)
	return before != nil && requested.Release.Image != "" && before.Status != configv1.ConditionUnknown &&
		strings.Contains(before.Message, fmt.Sprintf("image=%q", requested.Release.Image))
}

// The words of a phase while it runs, and when it has failed.
var phaseWords = map[AcceptancePhase]struct{ runs, failed string }{
	Retrieving: {"Retrieving and verifying payload", "Retrieving payload failed"},
	Loading:    {"Loading payload", "Loading payload failed"},
	Verifying:  {"Verifying payload", "Verifying payload failed"},
	Judging:    {"Checking preconditions of payload", "Preconditions failed for payload loaded"},
	Accepted:   {"Payload loaded", "Payload loaded"},
}

// message returns the phase of the release, and what blocks it.
func (a Acceptance) message() string {
	words := phaseWords[a.Phase]
	switch {
	case a.Err == nil && a.Phase == Accepted && a.Architecture != "":
		message := fmt.Sprintf("%s %s architecture=%q", words.runs, a.payload(), a.Architecture)
		if a.FeatureSet != "" && a.FeatureSet != payload.DefaultFeatureSet {
			message += fmt.Sprintf(" featureSet=%q", a.FeatureSet)
		}
		if a.Unverified != "" {
			message += notVerified + inLine(a.Unverified)
		}
		return message
	case a.Err == nil:
		return words.runs + " " + a.payload()
	case a.Phase == Judging:
		return list(words.failed+" "+a.payload(), a.blockers())
	default:
		return words.failed + " " + a.payload() + " failure=" + inLine(a.Err.Error())
	}
}

// payload names the release.
func (a Acceptance) payload() string {
	return fmt.Sprintf("version=%q image=%q", a.Release.Version, a.Release.Image)
}

// blockers returns the blocking findings of the gate, with their age and resolution. If the gate failed, it returns the
// error.
func (a Acceptance) blockers() []string {
	blocking := precondition.Blocking(a.Findings)
	if len(blocking) == 0 || reason.Of(a.Err) != precondition.ReasonFailed {
		return strings.Split(strings.TrimSpace(a.Err.Error()), "\n")
	}
	return findingLines(blocking)
}

// findingLines returns a line for each finding.
func findingLines(findings []precondition.CheckFinding) []string {
	var lines []string
	for _, finding := range findings {
		line := finding.Name()
		if finding.Since != nil {
			line += " since " + moment(*finding.Since)
		}
		line += ": " + finding.Message
		if finding.Resolution != "" {
			line += "; lifted by " + finding.Resolution
		}
		lines = append(lines, line)
	}
	return lines
}

// An Event is an event about the ClusterVersion.
type Event struct {
	IsWarning       bool
	Reason, Message string
}

// mostEvent is how many bytes of an event's message the API server accepts.
const mostEvent = 1024

// Announce returns the events of a release that has reached a phase, or is blocked in it, in their order. They are
// written once, when the phase or the error has changed.
func Announce(a Acceptance) []Event {
	switch {
	case a.Err != nil && a.Phase == Judging:
		return []Event{warning("PreconditionBlock", a.message())}
	case a.Err != nil:
		return []Event{warning(string(a.Phase)+"Failed", a.message())}
	case a.Phase == Retrieving || a.Phase == Loading:
		return []Event{normal(string(a.Phase), a.message())}
	case a.Phase == Accepted:
		return append(a.findingEvents(), normal(string(a.Phase), a.message()))
	default:
		return nil
	}
}

// RecordUnread returns the event of a record that can't be read.
func RecordUnread(why error) Event {
	return warning(cmp.Or(reason.Of(why), "ReleaseRecordUnreadable"), why.Error())
}

// findingEvents returns the events of the findings of the gate on an accepted release.
func (a Acceptance) findingEvents() []Event {
	var all []Event
	if a.AcceptedRisk != "" {
		all = append(all, warning(string(Retrieving), a.AcceptedRisk))
	}
	wasBlocked := len(precondition.Blocking(a.Findings)) > 0
	if len(a.Findings) > 0 {
		title := "precondition warning for payload loaded " + a.payload()
		if wasBlocked {
			title = "Forced through blocking failures of payload loaded " + a.payload()
		}
		all = append(all, warning("PreconditionWarn", list(title, findingLines(a.Findings))))
	}
	if a.WasJudged && !wasBlocked {
		all = append(all, normal("PreconditionsPassed", "preconditions passed for payload loaded "+a.payload()))
	}
	return all
}

func normal(reason, message string) Event {
	return Event{Reason: reason, Message: eventMessage(message)}
}

func warning(reason, message string) Event {
	return Event{IsWarning: true, Reason: reason, Message: eventMessage(message)}
}

// eventMessage returns a message in one line, no longer than the API server accepts.
func eventMessage(message string) string {
	return printable.Truncate(strings.ReplaceAll(message, "\n", " // "), mostEvent)
}
