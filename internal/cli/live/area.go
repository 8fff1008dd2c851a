package live

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// An Area is a text on a terminal. It is redrawn in place.
type Area struct {
	terminal      *os.File
	width, height int
	shownLines    []string // the lines of the area
	pendingLines  []string // lines that replace prints above the area, where they stay
	printedLines  []string // the last lines that were printed above the area
	isOverwritten bool     // another program has written to the terminal
}

// NewArea returns an area without lines.
func NewArea(terminal *os.File) *Area { return &Area{terminal: terminal} }

// The size of a terminal that does not report its size.
const (
	usualWidth  = 80
	usualHeight = 24
)

// Size returns the size of the terminal.
func (a *Area) Size() (width, height int) {
	width, height, err := term.GetSize(int(a.terminal.Fd()))
	if err != nil || width < 1 || height < 1 {
		return usualWidth, usualHeight
	}
	return width, height
}

// Draw replaces the lines of the area. render returns the lines for a width and a maximum number of lines for variable
// parts. Long lines are wrapped if there is room for that, and cut otherwise.
func (a *Area) Draw(render func(width, maxVariable int) []string) error {
	width, height := a.Size()
	lines := render(width, max(height/2, 1))
	return a.replace(fitToScreen(lines, width, height-1), width, height) // the last line is for the cursor
}

// replace replaces the lines with lines that fit the screen. If the terminal may have garbled the screen, it draws all
// of the area again, with the lines that were printed last.
func (a *Area) replace(lines []string, width, height int) error {
	if os.Getenv("NO_COLOR") != "" {
		for i := range lines {
			lines[i] = StripStyles(lines[i])
		}
	}
	var text strings.Builder
	switch isNarrower := width < a.width || height < a.height; {
	case len(a.shownLines) > 0 && (isNarrower || a.isOverwritten):
		text.WriteString(ansi.EraseEntireScreen + ansi.CursorHomePosition)
		a.pendingLines, a.printedLines = append(a.printedLines, a.pendingLines...), nil
	case slices.Equal(lines, a.shownLines) && len(a.pendingLines) == 0:
		return nil
	case len(a.shownLines) > 0:
		text.WriteString("\r" + ansi.CursorUp(len(a.shownLines)))
	}
	if len(a.pendingLines) > 0 { // the terminal may wrap them
		text.WriteString(ansi.EraseScreenBelow)
	}
	for _, line := range slices.Concat(a.pendingLines, lines) {
		text.WriteString(ansi.EraseLineRight + line + "\n")
	}
	text.WriteString(ansi.EraseScreenBelow)
	a.printedLines = append(a.printedLines, a.pendingLines...)
	a.printedLines = a.printedLines[max(0, len(a.printedLines)-height):]
	a.width, a.height, a.shownLines, a.pendingLines, a.isOverwritten = width, height, lines, nil, false
	_, err := a.terminal.WriteString(text.String())
	return err
}

// fitToScreen returns the lines, wrapped or cut to fit a screen.
func fitToScreen(lines []string, width, height int) []string {
	var wrapped, short []string
	for _, line := range lines {
		wrapped = append(wrapped, wrap(line, width)...)
		short = append(short, cut(line, width))
	}
	switch {
	case len(wrapped) <= height:
		return wrapped
	case len(short) <= height || height < 2:
		return short[:min(len(short), max(height, 1))]
	default:
		hidden := len(short) - height + 1
		return append(short[:height-1],
			cut(fmt.Sprintf("and %d more lines that do not fit on the screen", hidden), width))
	}
}
