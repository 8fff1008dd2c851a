package notify

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// words are the verbs of sentences about a release.
var words = map[EventType]string{Begun: "has begun", Completed: "completed", Failed: "failed", Blocked: "is blocked"}

// textOf returns an event in a line, such as "shop 1.4.0 → 1.5.0: update completed in 42s: 3 created, 12 configured".
func textOf(e Event) string {
	what := string(e.Action) + " " + words[e.Outcome]
	switch {
	case e.Outcome == RolledBack:
		what = "rolled back"
	case e.Outcome == Uninstalled:
		what = "uninstalled"
	case e.Outcome == Begun && e.IsResumed:
		what = string(e.Action) + " continues"
	}
	switch e.Outcome {
	case Begun:
		if e.By != "" {
			what += " by " + e.By
		}
	case Blocked:
		what += " by " + strings.Join(e.Checks, ", ")
	case Failed:
		what += " after " + rounded(e.Seconds)
	default:
		what += " in " + rounded(e.Seconds)
	}
	if details := detailsOf(e); details != "" {
		what += ": " + details
	}
	return printable.Line(titleOf(e) + ": " + what)
}

// titleOf returns the release with its versions.
func titleOf(e Event) string {
	title := e.Release
	if e.From != "" {
		title += " " + e.From + " →"
	}
	if e.Version != "" {
		title += " " + e.Version
	}
	return title
}

// detailsOf returns why an action has failed or is blocked, with the first object that has failed; otherwise the
// changes.
func detailsOf(e Event) string {
	details := e.Message
	if len(e.Failures) > 0 {
		first := e.Failures[0]
		failure := first.OrHook(first.Hook) + ": " + first.Message
		switch {
		// the error of the apply is that of the object
		case details == "" || strings.Contains(details, first.ID.String()):
			details = failure
		default:
			details += "; " + failure
		}
		if others := len(e.Failures) - 1 + e.More; others > 0 {
			details += fmt.Sprintf(" (and %d more)", others)
		}
	}
	if details != "" {
		return details
	}
	var counts []string
	for action, count := range e.Counts {
		counts = append(counts, fmt.Sprintf("%d %s", count, action))
	}
	slices.Sort(counts)
	return strings.Join(counts, ", ")
}

func rounded(seconds float64) string {
	took := time.Duration(seconds * float64(time.Second))
	if took < 10*time.Second {
		return took.Round(100 * time.Millisecond).String()
	}
	return took.Round(time.Second).String()
}
