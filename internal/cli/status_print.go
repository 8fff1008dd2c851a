package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/cli/live"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/graph"
)

// The size of a status without a terminal.
const (
	statusWidth  = 100
	statusLevels = 30 // lines
)

// lines renders the status as text. Levels are as wide as the screen, in colours, and in a limited number of lines.
func (s *releaseStatus) lines(width, levels int) []string {
	lines := append([]string{s.title()}, messageLines(s.Messages, nil)...)
	if s.LastSeconds > 0 {
		lines = append(lines, fmt.Sprintf("  the last %s took %s", printable.Line(s.Mode), time.Duration(s.LastSeconds*float64(time.Second))))
	}
	if s.Progress != nil && s.Progress.Total > 0 {
		lines = append(lines, live.Levels(*s.Progress, width, levels)...)
	}
	lines = append(lines, s.objectLines()...)
	lines = append(lines, s.hookLines()...)
	lines = append(lines, s.repairLines()...)
	lines = append(lines, s.versionLines()...)
	lines = append(lines, under("what blocks the requested version:", s.gateLines(true))...)
	lines = append(lines, under("what blocks the next minor version:", s.gateLines(false))...)
	lines = append(lines, under("ClusterOperators that are unavailable, degraded, progressing or not upgradeable:", s.operatorLines())...)
	lines = append(lines, under("recent events:", s.eventLines())...)
	return append(lines, s.lastLines()...)
}

// under returns a title and lines; none if there are no lines.
func under(title string, lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	return append([]string{title}, lines...)
}

// firstOf returns the lines of the first items, and the number of further items.
func firstOf[T any](items []T, of func(T) []string) []string {
	var lines []string
	for _, item := range items[:min(mostOfEach, len(items))] {
		lines = append(lines, of(item)...)
	}
	if more := len(items) - mostOfEach; more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more: -o json has them all", more))
	}
	return lines
}

// title returns the version of the release and its progress in a line.
func (s *releaseStatus) title() string {
	title := "release " + s.Release
	switch {
	case s.Lost != nil:
		title = "release " + s.Lost.title()
	case s.State == "":
		title += ": not applied"
	case s.State == record.Completed && s.Mode == string(graph.Reconcile):
		title += named(s.Version) + ": complete once, and applied again" + s.percentText()
	case s.State == record.Completed && s.Done:
		title += s.versionText() + ": complete"
	case s.State == record.Completed && s.NotKept != nil && len(s.Objects)+s.Missing == 0 && s.isHealthy():
		title += s.versionText() + ": complete, and not kept in place"
	case s.State == record.Completed && s.requestedVersion() != "":
		title += s.versionText() + ": complete, and another version is requested"
	case s.State == record.Completed && len(s.Objects)+s.Missing == 0 && s.isHealthy():
		title += s.versionText() + ": complete, as far as is known"
	case s.State == record.Completed:
		title += s.versionText() + ": complete, and not all is well"
	default:
		title += ": " + cmp.Or(s.Mode, "update") + s.versionRange() + s.percentText()
	}
	return printable.Line(title)
}

// requestedVersion returns the version or image that the ClusterVersion requests, if it is another one.
func (s *releaseStatus) requestedVersion() string {
	if s.ClusterVersion == nil {
		return ""
	}
	return s.ClusterVersion.Requested
}

// versionText returns the version, and the previous one.
func (s *releaseStatus) versionText() string {
	if s.Version == "" || s.Previous == "" || s.Previous == s.Version {
		return named(s.Version)
	}
	return " " + s.Version + ", after " + s.Previous
}

// versionRange returns the versions that an update leads from and to.
func (s *releaseStatus) versionRange() string {
	switch {
	case s.Version == "":
		return ""
	case s.Mode == string(graph.Install):
		return " of " + s.Version
	case s.Previous == "" || s.Previous == s.Version:
		return " to " + s.Version
	default:
		return " from " + s.Previous + " to " + s.Version
	}
}

// percentText returns how much is done.
func (s *releaseStatus) percentText() string {
	if s.Percent == nil {
		return ", not complete"
	}
	return fmt.Sprintf(", %d%% done", *s.Percent)
}

// objectLines returns lines on the objects that are not ready, a screenful at most.
func (s *releaseStatus) objectLines() []string {
	return under("not as they are to be:", objectLinesOf(s.Objects, mostLines))
}

// hookLines returns lines on lifecycle hooks of Deployments.
func (s *releaseStatus) hookLines() []string {
	return under("lifecycle hooks:", firstOf(s.Hooks, func(hook why.HookStatus) []string {
		return []string{"  " + hook.Sentence("the "+hook.Object.OrHook(string(hook.Hook)), s.Time)}
	}))
}

// repairLines returns lines on the repairs since the version was begun.
func (s *releaseStatus) repairLines() []string {
	if s.Repairs == nil {
		return nil
	}
	var lines []string
	for _, repair := range s.Repairs.Latest[:min(mostEvents, len(s.Repairs.Latest))] {
		text := repair.ID.String() + ": " + repair.Message + ", " + age(s.Time, repair.Time.Time) + " ago"
		if repair.Count > 1 {
			text += fmt.Sprintf("; %d times", repair.Count)
		}
		lines = append(lines, "  "+printable.Line(text))
	}
	return under(fmt.Sprintf("repaired since the version was begun, %s:", printable.Count(s.Repairs.Count, "time")), lines)
}

// versionLines returns lines on the ClusterVersion, except the gates of an update.
func (s *releaseStatus) versionLines() []string {
	v := s.ClusterVersion
	if v == nil {
		return nil
	}
	var lines []string
	if v.Requested != "" {
		lines = append(lines, "  requests "+printable.Line(v.Requested))
	}
	lines = append(lines, updateLines(v.Updates)...)
	for _, condition := range v.Conditions {
		isOutdated := condition.Type == string(configv1.RetrievedUpdates) && condition.Status == "False" && len(v.Updates) > 0
		if isOutdated || !condition.isHealthy() && condition.Type != string(clusterversion.ReleaseAccepted) && condition.Type != "Upgradeable" {
			lines = append(lines, condition.lines("", s.Time)...)
		}
	}
	return under("ClusterVersion "+theVersion.Name+":", lines)
}

// updateLines returns lines on the available updates: the recommended ones, and the others with the reason.
func updateLines(updates []statusUpdate) (lines []string) {
	const most = 5
	var recommended, others []string
	for _, update := range updates {
		if update.Recommended == "True" {
			recommended = append(recommended, printable.Line(update.Version))
		} else {
			others = append(others, printable.Line(fmt.Sprintf("%s (%s)", update.Version, update.Reason)))
		}
	}
	if len(recommended) > 0 {
		lines = append(lines, "  available updates: "+printable.Few(recommended, most))
	}
	if len(others) > 0 {
		lines = append(lines, "  updates that are not recommended: "+printable.Few(others, most))
	}
	return lines
}

// lines returns lines on a condition: status, reason, time and message.
func (c statusCondition) lines(of string, now time.Time) []string {
	text := of + c.Type + "=" + c.Status
	if c.Reason != "" {
		text += " (" + c.Reason + ")"
	}
	return statement(text, c.Message, &c.Since, now)
}

// statement returns lines with a text, its age and a message, whose further lines are indented.
func statement(text, message string, since *time.Time, now time.Time) []string {
	if since != nil && !since.IsZero() {
		text += ", for " + age(now, *since)
	}
	first, rest, _ := strings.Cut(strings.TrimSpace(message), "\n")
	if first != "" {
		text += ": " + first
	}
	lines := []string{"  " + printable.Line(text)}
	for line := range strings.Lines(rest) {
		lines = append(lines, "    "+printable.Line(strings.TrimRight(line, "\n")))
	}
	return lines
}

// gateLines returns lines on what blocks the requested version, or the next minor version.
func (s *releaseStatus) gateLines(isRequested bool) []string {
	var gates []releaseGate
	for _, gate := range s.Gates {
		if gate.Requested == isRequested {
			gates = append(gates, gate)
		}
	}
	return firstOf(gates, func(gate releaseGate) []string {
		if strings.Contains(gate.Message, " for ") { // the message has the time
			gate.Since = nil
		}
		return statement(cmp.Or(gate.Reason, "not upgradeable"), gate.Message, gate.Since, s.Time)
	})
}

func (s *releaseStatus) operatorLines() []string {
	return firstOf(s.Operators, func(status operatorStatus) (lines []string) {
		for _, condition := range status.Conditions {
			lines = append(lines, condition.lines(strings.TrimSpace(status.Name+" "+status.Version)+": ", s.Time)...)
		}
		return lines
	})
}

func (s *releaseStatus) eventLines() []string {
	var lines []string
	for _, statusEvent := range s.Events {
		lines = append(lines, "  "+printable.Line(fmt.Sprintf("%s ago %s: %s", age(s.Time, statusEvent.Time), statusEvent.Reason, statusEvent.Message)))
	}
	return lines
}

// lastLines returns lines on the newest entry of the history, other releases and unknown facts.
func (s *releaseStatus) lastLines() []string {
	var lines []string
	if s.History != nil {
		lines = append(lines, "history: "+historyLine(*s.History, s.Time))
	}
	if len(s.Others) > 0 {
		lines = append(lines, "other releases, which --name shows: "+printable.Line(printable.Few(s.Others, mostOfEach)))
	}
	for _, what := range s.Unknown {
		lines = append(lines, "not known: "+printable.Line(what))
	}
	if s.Unreachable != "" {
		lines = append(lines, "the cluster does not respond, and is retried; this is the status of "+s.Time.Format(time.RFC3339)+": "+printable.Line(s.Unreachable))
	}
	return lines
}

// historyLine returns an entry of the history in a line: version, time and result.
func historyLine(entry record.HistoryEntry, now time.Time) string {
	text := strings.TrimSpace(fmt.Sprintf("%s %s", entry.Mode, entry.Version))
	if entry.Source != "" {
		text += " of " + entry.Source
	}
	text += ", begun " + age(now, entry.Started.Time) + " ago, " + string(entry.State)
	switch {
	case entry.Completed != nil:
		text += " after " + age(entry.Completed.Time, entry.Started.Time)
	case entry.End != nil:
		text += ", its apply ended " + age(now, entry.End.Time.Time) + " ago: " + entry.End.Message
	}
	if entry.Verified {
		text += ", verified"
	}
	if len(entry.Forced) > 0 {
		text += ", forced over " + strings.Join(entry.Forced, ", ")
	}
	for _, hookOverride := range entry.Hooks {
		text += ", the " + hookOverride.String()
	}
	return printable.Line(text)
}
