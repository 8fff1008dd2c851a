package live

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/runlevel/runlevel/internal/session/progress"
)

// A style is the escape sequence before a text. The sixteen colours of the terminal fit any theme; the text has all
// information without them.
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

// cut truncates a line to a width, whatever the width of its characters is.
func cut(line string, width int) string { return ansi.Truncate(line, width, "…") }

// cutLine returns cut as a list of one line.
func cutLine(line string, width int) []string { return []string{cut(line, width)} }

// wrap breaks a line without a style into lines of a width. All but the first are indented by two
// more columns. If that leaves hardly any room, the line is cut.
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

// word returns the first word of the line of an event.
func word(text string) string { return fmt.Sprintf("%-11s ", text) }

// bar draws how much is done, waiting and failed. A small share has at least one cell, and so
// does the rest.
func bar(width int, counts progress.StateCounts) string {
	failed, waits := cells(counts.Failed, counts.Total, width), cells(counts.Waiting, counts.Total, width)
	done := cells(counts.Done, counts.Total, width)
	switch leftCells := cells(counts.Left(), counts.Total, width); {
	case leftCells > 0:
		done = max(0, min(done, width-failed-waits-leftCells))
	case counts.Done > 0:
		done = max(0, width-failed-waits)
	case counts.Waiting > 0:
		waits = max(0, width-failed)
	case counts.Failed > 0:
		failed = width
	}
	rest := max(0, width-done-waits-failed)
	return good.of(strings.Repeat("█", done)) + slow.of(strings.Repeat("▒", waits)) +
		bad.of(strings.Repeat("▚", failed)) + faint.of(strings.Repeat("░", rest))
}

// cells returns the share of a width for some of all, at least one cell.
func cells(some, all, width int) int {
	if some <= 0 {
		return 0
	}
	return min(width, max(1, some*width/all))
}
