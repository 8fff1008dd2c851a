package state

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cli/live"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// The size of a status without a terminal.
const (
	statusWidth  = 100
	statusLevels = 30 // lines
)

// A statusText prints a status as text.
type statusText struct{ *state.Status }

// lines renders the status as text. The levels are as wide as the screen and coloured, and have a limited number of
// lines.
func (s statusText) lines(width, levels int) []string {
	lines := append([]string{s.Title()}, messageLines(s.Messages, nil)...)
	if s.LastSeconds > 0 {
		lines = append(lines, fmt.Sprintf("  the last %s took %s", printable.Line(s.Mode),
			time.Duration(s.LastSeconds*float64(time.Second))))
	}
	if s.Progress != nil && s.Progress.Total > 0 {
		lines = append(lines, live.Levels(*s.Progress, width, levels)...)
	}
	lines = append(lines, s.objectLines()...)
	lines = append(lines, s.hookLines()...)
	lines = append(lines, s.repairLines()...)
	lines = append(lines, s.versionLines()...)
	lines = append(lines, withTitle("gates that block the requested version:", s.gateLines(true))...)
	lines = append(lines, withTitle("gates that block the next minor version:", s.gateLines(false))...)
	lines = append(lines, withTitle("ClusterOperators that are unavailable, degraded, progressing or not upgradeable:",
		s.operatorLines())...)
	lines = append(lines, withTitle("recent events:", s.eventLines())...)
	return append(lines, s.lastLines()...)
}

// withTitle returns a title and lines, or nothing if there are no lines.
func withTitle(title string, lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	return append([]string{title}, lines...)
}

// linesOfFirst returns the lines of the first items, and a line with the number of further items.
func linesOfFirst[T any](items []T, linesOf func(T) []string) []string {
	var lines []string
	for _, item := range items[:min(maxOfEach, len(items))] {
		lines = append(lines, linesOf(item)...)
	}
	if more := len(items) - maxOfEach; more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more: -o json lists all", more))
	}
	return lines
}

// objectLines returns lines on the objects that are not ready, a screenful at most.
func (s statusText) objectLines() []string {
	return withTitle("not ready, or different from the release:", objectLinesOf(s.Objects, maxLines))
}

// hookLines returns lines on lifecycle hooks of Deployments.
func (s statusText) hookLines() []string {
	return withTitle("lifecycle hooks:", linesOfFirst(s.Hooks, func(hook why.HookStatus) []string {
		return []string{"  " + hook.Sentence("the "+hook.Object.OrHook(string(hook.Hook)), s.Time)}
	}))
}

// maxRepairs limits the latest repairs that a status shows.
const maxRepairs = 5

// repairLines returns lines on the repairs since the version was begun.
func (s statusText) repairLines() []string {
	if s.Repairs == nil {
		return nil
	}
	var lines []string
	for _, repair := range s.Repairs.Latest[:min(maxRepairs, len(s.Repairs.Latest))] {
		text := repair.ID.String() + ": " + repair.Message + ", " + printable.Age(s.Time, repair.Time.Time) + " ago"
		if repair.Count > 1 {
			text += fmt.Sprintf("; %d times", repair.Count)
		}
		lines = append(lines, "  "+printable.Line(text))
	}
	return withTitle(fmt.Sprintf("repaired since the version was begun, %s:", printable.Count(s.Repairs.Count, "time")),
		lines)
}

// versionLines returns lines on the ClusterVersion, except the gates of an update.
func (s statusText) versionLines() []string {
	v := s.ClusterVersion
	if v == nil {
		return nil
	}
	var lines []string
	if v.Requested != "" {
		lines = append(lines, "  requests "+printable.Line(v.Requested))
	}
	lines = append(lines, updateLines(v.Updates)...)
	for _, condition := range v.Problems() {
		lines = append(lines, conditionLines(condition, "", s.Time)...)
	}
	return withTitle("ClusterVersion "+kinds.ClusterVersionName+":", lines)
}

// updateLines returns lines on the available updates: the recommended ones, and the others with the reason.
func updateLines(updates []state.Update) (lines []string) {
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

// conditionLines returns lines on a condition: status, reason, time and message.
func conditionLines(c state.Condition, title string, now time.Time) []string {
	text := title + c.Type + "=" + c.Status
	if c.Reason != "" {
		text += " (" + c.Reason + ")"
	}
	return statement(text, c.Message, &c.Since, now)
}

// statement returns lines with a text, its age and a message, whose further lines are indented.
func statement(text, message string, since *time.Time, now time.Time) []string {
	if since != nil && !since.IsZero() {
		text += ", for " + printable.Age(now, *since)
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

// gateLines returns lines on gates that block the requested version, or the next minor version.
func (s statusText) gateLines(isRequested bool) []string {
	var gates []state.Gate
	for _, gate := range s.Gates {
		if gate.Requested == isRequested {
			gates = append(gates, gate)
		}
	}
	return linesOfFirst(gates, func(gate state.Gate) []string {
		if strings.Contains(gate.Message, " for ") { // the message has the time
			gate.Since = nil
		}
		return statement(cmp.Or(gate.Reason, "not upgradeable"), gate.Message, gate.Since, s.Time)
	})
}

func (s statusText) operatorLines() []string {
	return linesOfFirst(s.Operators, func(status state.OperatorStatus) (lines []string) {
		for _, condition := range status.Conditions {
			lines = append(lines, conditionLines(condition, strings.TrimSpace(status.Name+" "+status.Version)+": ",
				s.Time)...)
		}
		return lines
	})
}

func (s statusText) eventLines() []string {
	var lines []string
	for _, event := range s.Events {
		lines = append(lines, "  "+
			printable.Line(fmt.Sprintf("%s ago %s: %s", printable.Age(s.Time, event.Time), event.Reason,
				event.Message)))
	}
	return lines
}

// lastLines returns lines on the newest entry of the history, other releases and unknown facts.
func (s statusText) lastLines() []string {
	var lines []string
	if s.History != nil {
		lines = append(lines, "history: "+historyLine(*s.History, s.Time))
	}
	if len(s.Others) > 0 {
		lines = append(lines, "other releases, which --name shows: "+
			printable.Line(printable.Few(s.Others, maxOfEach)))
	}
	for _, what := range s.Unknown {
		lines = append(lines, "not known: "+printable.Line(what))
	}
	if s.Unreachable != "" {
		lines = append(lines, "the cluster does not respond, and is retried; this is the status of "+
			s.Time.Format(time.RFC3339)+": "+printable.Line(s.Unreachable))
	}
	return lines
}

// historyLine returns an entry of the history in a line: version, time and result.
func historyLine(entry record.HistoryEntry, now time.Time) string {
	text := strings.TrimSpace(fmt.Sprintf("%s %s", entry.Mode, entry.Version))
	if entry.Source != "" {
		text += " of " + entry.Source
	}
	text += ", begun " + printable.Age(now, entry.Started.Time) + " ago, " + string(entry.State)
	switch {
	case entry.Completed != nil:
		text += " after " + printable.Age(entry.Completed.Time, entry.Started.Time)
	case entry.End != nil:
		text += ", its apply ended " + printable.Age(now, entry.End.Time.Time) + " ago: " + entry.End.Message
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
