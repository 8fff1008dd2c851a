package live

import (
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// A style is how a text looks. The sixteen colours of the terminal fit whatever theme it has;
// none of them says anything that the text does not.
type style struct{ lipgloss.Style }

func plain() style  { return style{lipgloss.NewStyle()} }
func strong() style { return style{lipgloss.NewStyle().Bold(true)} }
func faint() style  { return style{lipgloss.NewStyle().Faint(true)} }
func good() style   { return style{lipgloss.NewStyle().Foreground(lipgloss.Green)} }
func bad() style    { return style{lipgloss.NewStyle().Foreground(lipgloss.Red)} }
func slow() style   { return style{lipgloss.NewStyle().Foreground(lipgloss.Yellow)} }

// of paints a text. Tabs and the like are none of a screen's.
func (s style) of(text string) string {
	if text == "" {
		return ""
	}
	return s.Render(text)
}

// cut makes a line fit a width, however wide its characters are.
func cut(line string, width int) string { return ansi.Truncate(line, width, "…") }

// word is the first word of a line that tells of an event.
func word(text string) string { return fmt.Sprintf("%-11s ", text) }

// bar draws how much of something is done, waited for and failed. What there is only a little
// of shows, and so does what is not all done.
func bar(width int, of progress) string {
	failed, waits := cells(of.failed, of.total, width), cells(of.waits, of.total, width)
	done := cells(of.done, of.total, width)
	switch left := cells(of.left(), of.total, width); {
	case left > 0:
		done = max(0, min(done, width-failed-waits-left))
	case of.done > 0:
		done = max(0, width-failed-waits)
	case of.waits > 0:
		waits = max(0, width-failed)
	case of.failed > 0:
		failed = width
	}
	rest := max(0, width-done-waits-failed)
	return good().of(strings.Repeat("█", done)) + slow().of(strings.Repeat("▒", waits)) +
		bad().of(strings.Repeat("▚", failed)) + faint().of(strings.Repeat("░", rest))
}

// cells is how many of a width some of all are; one, if they are few.
func cells(some, all, width int) int {
	if some <= 0 {
		return 0
	}
	return min(width, max(1, some*width/all))
}
