package live

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/runlevel/runlevel/internal/session/progress"
)

// A style is how a text looks: what the terminal is told before it. The sixteen colours of the
// terminal fit whatever theme it has; none of them says anything that the text does not.
type style string

const (
	plain  style = ""
	strong style = "\x1b[1m"
	faint  style = "\x1b[2m"
	bad    style = "\x1b[31m"
	good   style = "\x1b[32m"
	slow   style = "\x1b[33m"
)

// of paints a text.
func (s style) of(text string) string {
	if text == "" || s == plain {
		return text
	}
	return string(s) + text + ansi.ResetStyle
}

// cut makes a line fit a width, however wide its characters are.
func cut(line string, width int) string { return ansi.Truncate(line, width, "…") }

// cutLine is cut, as a list of one line.
func cutLine(line string, width int) []string { return []string{cut(line, width)} }

// wrap breaks a line that has no style into as many as it takes to fit a width. All but the first
// are indented a little more. Where there is hardly any room beside that, the line is cut.
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

// word is the first word of a line that tells of an event.
func word(text string) string { return fmt.Sprintf("%-11s ", text) }

// bar draws how much of something is done, waited for and failed. What there is only a little
// of shows, and so does what is not all done.
func bar(width int, of progress.StateCounts) string {
	failed, waits := cells(of.Failed, of.Total, width), cells(of.Waiting, of.Total, width)
	done := cells(of.Done, of.Total, width)
	switch left := cells(of.Left(), of.Total, width); {
	case left > 0:
		done = max(0, min(done, width-failed-waits-left))
	case of.Done > 0:
		done = max(0, width-failed-waits)
	case of.Waiting > 0:
		waits = max(0, width-failed)
	case of.Failed > 0:
		failed = width
	}
	rest := max(0, width-done-waits-failed)
	return good.of(strings.Repeat("█", done)) + slow.of(strings.Repeat("▒", waits)) +
		bad.of(strings.Repeat("▚", failed)) + faint.of(strings.Repeat("░", rest))
}

// cells is how many of a width some of all are; one, if they are few.
func cells(some, all, width int) int {
	if some <= 0 {
		return 0
	}
	return min(width, max(1, some*width/all))
}
