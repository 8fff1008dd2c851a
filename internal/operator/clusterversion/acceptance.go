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

// setReleaseAccepted sets ReleaseAccepted: unknown while a release is on its way. Of an image that is tried again, or
// retrieved again after a restart, it stays what it was until the outcome is known.
func (b *builder) setReleaseAccepted() {
	asked := b.seen.Acceptance
	if applied := b.seen.Applied; applied != nil && asked.Release.Version == "" && asked.Release.Image == applied.Release.Image {
		asked.Release.Version = applied.Release.Version
	}
	switch {
	case asked.Phase == "":
	case asked.Err != nil:
		b.set(ReleaseAccepted, configv1.ConditionFalse, string(asked.Phase), asked.message())
	case asked.Phase == Accepted:
		b.set(ReleaseAccepted, configv1.ConditionTrue, string(asked.Phase), b.withUnverified(asked.message()))
	case b.isKnown(asked):
	default:
		b.set(ReleaseAccepted, configv1.ConditionUnknown, string(asked.Phase), asked.message())
	}
}

// notVerified begins what is said at the end of a message.
const notVerified = "; not verified: "

// withUnverified returns a message with what the condition says already of the image not being verified: an operator that
// has just begun does not know it.
func (b *builder) withUnverified(message string) string {
	if before := b.find(ReleaseAccepted); before != nil && strings.HasPrefix(before.Message, message+notVerified) {
		return before.Message
	}
	return message
}

// isKnown returns whether the condition says already whether the image was accepted.
func (b *builder) isKnown(asked Acceptance) bool {
	before := b.find(ReleaseAccepted)
	return before != nil && asked.Release.Image != "" && before.Status != configv1.ConditionUnknown && strings.Contains(before.Message, fmt.Sprintf("image=%q", asked.Release.Image))
}

// The words of a phase while it runs, and when it has failed.
var phaseWords = map[AcceptancePhase]struct{ runs, failed string }{
	Retrieving: {"Retrieving and verifying payload", "Retrieving payload failed"},
	Loading:    {"Loading payload", "Loading payload failed"},
	Verifying:  {"Verifying payload", "Verifying payload failed"},
	Judging:    {"Checking preconditions of payload", "Preconditions failed for payload loaded"},
	Accepted:   {"Payload loaded", "Payload loaded"},
}

// message returns how far the release is, and what stops it.
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

// blockers returns what the gate stops the release for: what blocks, since when, and who can lift it. If the gate could
// not be asked, that is what stops it.
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
		line := finding.Check
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

// mostEvent is how many bytes of a message the API server takes.
const mostEvent = 1024

// Announce returns the events of a release that has come to a phase, or is stopped in it, in their order. They are
// written once, when the phase or what stops it has changed.
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

// findingEvents returns the events of what the gate has found of a release that is accepted.
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

// eventMessage returns a message in one line, and no longer than the API server takes it.
func eventMessage(message string) string {
	return printable.Truncate(strings.ReplaceAll(message, "\n", " // "), mostEvent)
}
