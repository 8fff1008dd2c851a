// Package live shows an apply on a terminal: the progress of each level, running components and their waits, failures,
// and the remaining time.
//
// Screen renders a progress.Progress as lines of text. It needs no terminal and no clock, so tests call it with values.
// A View draws the screen on a terminal, several times a second, below earlier output.
//
// The parts of a screen are in screen.go, levels.go and running.go. Start with Start.
package live

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply"
)

// A page is a rendered progress.
type page struct{ progress.Progress }

// Screen renders a progress in at most height lines of at most width columns.
func Screen(shown progress.Progress, width, height int) string {
	p := page{shown}
	if width < 1 || height < 1 {
		return ""
	}
	lines := p.head(width)
	parts := p.parts(width, height)
	distributeLines(parts, height-len(lines))
	for _, part := range parts {
		lines = append(lines, part.lines(width)...)
	}
	for i := range lines {
		lines[i] = cut(lines[i], width)
	}
	return strings.Join(lines[:min(height, len(lines))], "\n")
}

// head renders the title, the time, and the progress.
func (p page) head(width int) []string {
	times := clock(p.Now.Sub(p.Began))
	if remaining := p.remainingText(); remaining != "" {
		times += ", " + remaining
	}
	title := printable.Line(p.Title)
	if room := width - ansi.StringWidth(times) - 2; ansi.StringWidth(title) > room {
		title = cut(title, max(room, 0))
	}
	gap := max(1, width-ansi.StringWidth(title)-ansi.StringWidth(times))
	return []string{strong.of(title) + strings.Repeat(" ", gap) + times, p.sum(width)}
}

// sum renders the counts of objects that are done, failed and waiting.
func (p page) sum(width int) string {
	counts := fmt.Sprintf("%d/%d", p.Done, p.Total)
	var more string
	if len(p.Failures) > 0 {
		more += fmt.Sprintf(", %d failed", len(p.Failures))
	}
	if len(p.Waits) > 0 {
		more += fmt.Sprintf(", %d waiting", len(p.Waits))
	}
	room := min(max(width-len(counts)-len(more)-1, 8), 80)
	return bar(room, p.StateCounts) + " " + counts + more
}

// remainingText renders the remaining time, or "" if the time is unknown or too short.
func (p page) remainingText() string {
	remaining := p.Progress.Left
	if remaining < 3*time.Second {
		return ""
	}
	step := 5 * time.Second
	switch {
	case remaining > 10*time.Minute:
		step = time.Minute
	case remaining > time.Minute:
		step = 10 * time.Second
	}
	return "about " + clock(max(remaining.Round(step), step)) + " left"
}

// clock returns a duration as a short text: 42s, 3m07s, 2h05m.
func clock(d time.Duration) string {
	seconds := int(max(d, 0).Seconds())
	switch minutes := seconds / 60; {
	case minutes == 0:
		return fmt.Sprintf("%ds", seconds)
	case minutes < 60:
		return fmt.Sprintf("%dm%02ds", minutes, seconds%60)
	default:
		return fmt.Sprintf("%dh%02dm", minutes/60, minutes%60)
	}
}

// A part is a list on the screen.
type part struct {
	title string
	want  int                            // lines, with the title
	got   int                            // lines that it gets
	body  func(width, room int) []string // lines below the title
}

// lines renders a part in the lines that it gets. If the part gets a single line, it is the title, which has the number
// of items.
func (p part) lines(width int) []string {
	switch {
	case p.got == 0:
		return nil
	case p.title == "":
		return p.body(width, p.got)
	default:
		return append([]string{strong.of(p.title)}, p.body(width, p.got-1)...)
	}
}

// The parts, from top to bottom.
const (
	levelPart = iota
	runningPart
	failedPart
	deletesPart
	recentPart
)

// parts returns the parts below the head, on a screen of a height.
func (p page) parts(width, height int) []part {
	running := p.runningLines(width, height)
	var failures, deletes, recent []string
	for _, event := range p.Failures {
		failures = append(failures, strings.TrimPrefix(Line(event), eventWord(string(event.Type))))
	}
	for _, deleting := range p.Deletes {
		deletes = append(deletes, deleting.Object.String()+": "+printable.Line(deleting.Message))
	}
	for _, event := range p.Recent {
		recent = append(recent, Line(event))
	}
	parts := []part{
		levelPart:   {want: len(p.levelLines(width, height)), body: p.levelLines},
		runningPart: {title: fmt.Sprintf("running (%d)", len(p.jobs())), want: len(running), body: p.runningLines},
		failedPart:  listPart(fmt.Sprintf("failed (%d)", len(failures)), failures, bad, width),
		deletesPart: listPart(fmt.Sprintf("deletes that are pending (%d)", len(deletes)), deletes, plain, width),
		recentPart:  listPart("recent events", recent, faint, width),
	}
	if len(running) > 0 {
		parts[runningPart].want++
	}
	return parts
}

// maxListItems limits the rendered items of a list. No screen shows more.
const maxListItems = 100

// listPart returns a part with all items, wrapped, if there is room for them; otherwise with the last items, each cut
// to a line.
func listPart(title string, items []string, look style, width int) part {
	if len(items) == 0 {
		return part{}
	}
	items = items[max(0, len(items)-maxListItems):]
	var wrapped []string
	for _, item := range items {
		for _, line := range wrap("  "+item, width) {
			wrapped = append(wrapped, look.of(line))
		}
	}
	return part{title: title, want: len(wrapped) + 1, body: func(width, room int) []string {
		if len(wrapped) <= room {
			return wrapped
		}
		var lines []string
		for _, item := range items[max(0, len(items)-room):] {
			lines = append(lines, look.of(cut("  "+item, width)))
		}
		return lines
	}}
}

// lineShares lists the parts in the order in which they get lines, with the number of lines that a part has after its
// turn. First, each part gets a few lines.
var lineShares = []struct{ part, upTo int }{
	{runningPart, 2}, {failedPart, 2}, {levelPart, 1}, {deletesPart, 2}, {levelPart, 4}, {runningPart, 4},
	{failedPart, 4},
	{runningPart, 8}, {levelPart, 8}, {deletesPart, 4}, {runningPart, 12}, {recentPart, 4}, {runningPart, 16},
	{levelPart, 16}, {failedPart, 8},
	{runningPart, 40}, {levelPart, 40}, {failedPart, 20}, {deletesPart, 20}, {recentPart, 10},
	{runningPart, 1 << 20}, {levelPart, 1 << 20},
}

// distributeLines gives lines to parts. A part with room for its title only gets no line, unless the title has the
// number of failures or deletes.
func distributeLines(parts []part, room int) {
	for _, share := range lineShares {
		p := &parts[share.part]
		more := max(0, min(min(p.want, share.upTo)-p.got, room))
		if p.title != "" && p.got+more < 2 && share.part != failedPart && share.part != deletesPart {
			more = 0
		}
		p.got += more
		room -= more
	}
}

// Line returns an event as the line to print without a live view.
func Line(event apply.Event) string {
	what := string(event.Type)
	if event.Type == apply.Applied {
		what = string(event.Action)
	}
	text := eventWord(what) + event.Name()
	if event.Message != "" {
		text += ": " + event.Message
	}
	if event.Type == apply.Failing || event.Type == apply.Warned {
		text += " (" + printable.Line(event.File) + ")"
	}
	return text
}

// A style is the escape sequence before a text. The sixteen colours of a terminal fit any theme. Text without styles
// has the same information.
type style string

const (
	plain  style = ""
	strong style = "\x1b[1m"
	faint  style = "\x1b[2m"
	bad    style = "\x1b[31m"
	good   style = "\x1b[32m"
	slow   style = "\x1b[33m"
)

// of returns the text in the style.
func (s style) of(text string) string {
	if text == "" || s == plain {
		return text
	}
	return string(s) + text + ansi.ResetStyle
}

// cut truncates a line to a width. Characters may be wide.
func cut(line string, width int) string { return ansi.Truncate(line, width, "…") }

// cutLine returns cut as a list of one line.
func cutLine(line string, width int) []string { return []string{cut(line, width)} }

// wrap breaks a line without a style into lines of a width. It indents all lines but the first by two more columns. If
// the indented lines have hardly any room, wrap cuts the line instead.
func wrap(line string, width int) []string {
	const narrowest = 16
	text := strings.TrimLeft(line, " ")
	indent := line[:len(line)-len(text)]
	room := width - len(indent) - 2
	if ansi.StringWidth(line) <= width || room < narrowest {
		return cutLine(line, width)
	}
	return strings.Split(indent+strings.ReplaceAll(ansi.Wrap(text, room, ""), "\n", "\n  "+indent), "\n")
}

// eventWord pads the first word of the line of an event.
func eventWord(text string) string { return fmt.Sprintf("%-11s ", text) }

// bar draws the shares of objects that are done, waiting and failed. A small share has at least one cell, and so have
// the remaining objects.
func bar(width int, counts progress.StateCounts) string {
	failed, waiting := cells(counts.Failed, counts.Total, width), cells(counts.Waiting, counts.Total, width)
	done := cells(counts.Done, counts.Total, width)
	switch remaining := cells(counts.Left(), counts.Total, width); {
	case remaining > 0:
		done = max(0, min(done, width-failed-waiting-remaining))
	case counts.Done > 0:
		done = max(0, width-failed-waiting)
	case counts.Waiting > 0:
		waiting = max(0, width-failed)
	case counts.Failed > 0:
		failed = width
	}
	rest := max(0, width-done-waiting-failed)
	return good.of(strings.Repeat("█", done)) + slow.of(strings.Repeat("▒", waiting)) +
		bad.of(strings.Repeat("▚", failed)) + faint.of(strings.Repeat("░", rest))
}

// cells returns the share of a width for some of all, at least one cell.
func cells(some, all, width int) int {
	if some <= 0 {
		return 0
	}
	return min(width, max(1, some*width/all))
}
