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

// setReleaseAccepted sets ReleaseAccepted, which is Unknown until the outcome is known. If the image is retrieved
// again, by a retry or after a restart, the previous outcome stays meanwhile.
func (b *builder) setReleaseAccepted() {
	requested := b.observed.Acceptance
	if applied := b.observed.Applied; applied != nil && requested.Release.Version == "" &&
		requested.Release.Image == applied.Release.Image {
		requested.Release.Version = applied.Release.Version
	}
	switch {
	case requested.Phase == "":
	case requested.Err != nil:
		b.set(ReleaseAccepted, configv1.ConditionFalse, string(requested.Phase), requested.message())
	case requested.Phase == Accepted:
		b.set(ReleaseAccepted, configv1.ConditionTrue, string(requested.Phase), b.withUnverified(requested.message()))
	case b.isDecided(ReleaseAccepted, requested):
	default:
		b.set(ReleaseAccepted, configv1.ConditionUnknown, string(requested.Phase), requested.message())
	}
}

// notVerified begins the part of a message about a missing verification.
const notVerified = "; not verified: "

// withUnverified adds to a message the part about a missing verification that the condition has: a restarted operator
// does not know it.
func (b *builder) withUnverified(message string) string {
	if before := b.find(ReleaseAccepted); before != nil && strings.HasPrefix(before.Message, message+notVerified) {
		return before.Message
	}
	return message
}

// isDecided reports whether a condition already has the outcome for the image.
func (b *builder) isDecided(kind configv1.ClusterStatusConditionType, requested Acceptance) bool {
	before := b.find(kind)
	return before != nil && requested.Release.Image != "" && before.Status != configv1.ConditionUnknown &&
		strings.Contains(before.Message, fmt.Sprintf("image=%q", requested.Release.Image))
}

// phaseWords describe a phase while it runs, and after it has failed.
var phaseWords = map[AcceptancePhase]struct{ runs, failed string }{
	Retrieving: {"Retrieving and verifying payload", "Retrieving payload failed"},
	Loading:    {"Loading payload", "Loading payload failed"},
	Verifying:  {"Verifying payload", "Verifying payload failed"},
	Judging:    {"Checking preconditions of payload", "Preconditions failed for payload loaded"},
	Accepted:   {"Payload loaded", "Payload loaded"},
}

// message returns the phase of the release, and why it is refused.
func (a Acceptance) message() string {
	words := phaseWords[a.Phase]
	switch {
	case a.Err == nil && a.Phase == Accepted && a.Architecture != "":
		message := fmt.Sprintf("%s %s architecture=%q", words.runs, a.payload(), a.Architecture)
		if a.FeatureSet != "" && a.FeatureSet != payload.DefaultFeatureSet {
			message += fmt.Sprintf(" featureSet=%q", a.FeatureSet)
		}
		message += a.unread()
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

// unread returns the part of a message about the parts of the release that the operator does not know.
func (a Acceptance) unread() string {
	if len(a.Unread) == 0 {
		return ""
	}
	return "; not known to this operator: " + inLine(strings.Join(few(a.Unread), "\n"))
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
func findingLines(findings []precondition.Finding) []string {
	var lines []string
	for _, finding := range findings {
		line := finding.Name()
		if finding.Since != nil {
			line += " since " + moment(*finding.Since)
		}
		line += ": " + finding.Message
		if finding.Resolution != "" {
			line += "; resolve by: " + finding.Resolution
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

// maxEvent is the maximum length of an event's message that the API server accepts, in bytes.
const maxEvent = 1024

// Announce returns the events of a requested release that has entered a phase, or is refused in it, in their order. The
// caller writes them once for each phase and each error.
func Announce(a Acceptance) []Event {
	switch {
	case a.Err != nil && a.Phase == Judging:
		return []Event{newEvent(true, "PreconditionBlock", a.message())}
	case a.Err != nil:
		return []Event{newEvent(true, string(a.Phase)+"Failed", a.message())}
	case a.Phase == Retrieving || a.Phase == Loading:
		return []Event{newEvent(false, string(a.Phase), a.message())}
	case a.Phase == Accepted:
		return append(a.findingEvents(), newEvent(false, string(a.Phase), a.message()))
	default:
		return nil
	}
}

// RecordUnread returns the event of a record that can't be read.
func RecordUnread(err error) Event {
	return newEvent(true, cmp.Or(reason.Of(err), "ReleaseRecordUnreadable"), err.Error())
}

// findingEvents returns the events of the findings of the gate on an accepted release.
func (a Acceptance) findingEvents() []Event {
	var all []Event
	if a.AcceptedRisk != "" {
		all = append(all, newEvent(true, string(Retrieving), a.AcceptedRisk))
	}
	wasBlocked := len(precondition.Blocking(a.Findings)) > 0
	if len(a.Findings) > 0 {
		title := "precondition warning for payload loaded " + a.payload()
		if wasBlocked {
			title = "Forced through blocking failures of payload loaded " + a.payload()
		}
		all = append(all, newEvent(true, "PreconditionWarn", list(title, findingLines(a.Findings))))
	}
	if a.WasJudged && !wasBlocked {
		all = append(all, newEvent(false, "PreconditionsPassed",
			"preconditions passed for payload loaded "+a.payload()))
	}
	return all
}

// newEvent returns an event with a message in one line, no longer than the API server accepts.
func newEvent(isWarning bool, reason, message string) Event {
	message = printable.Truncate(strings.ReplaceAll(message, "\n", " // "), maxEvent)
	return Event{IsWarning: isWarning, Reason: reason, Message: message}
}
