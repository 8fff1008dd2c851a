package live

import (
	"fmt"
	"os"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// A Still is a text on a terminal that is drawn again in its place.
type Still struct {
	terminal      *os.File
	width, height int
	drawn         int // lines
}

// NewStill returns a still on which nothing is drawn yet.
func NewStill(terminal *os.File) *Still { return &Still{terminal: terminal} }

// The size that a terminal has which does not tell its own.
const (
	usualWidth  = 80
	usualHeight = 24
)

// Size returns the size of the terminal.
func (s *Still) Size() (width, height int) {
	width, height, err := term.GetSize(int(s.terminal.Fd()))
	if err != nil || width < 1 || height < 1 {
		return usualWidth, usualHeight
	}
	return width, height
}

// Draw draws lines in place of those before. They are rendered for a width, and with some of them in at most a number
// of lines. Long ones are wrapped where there is room for that, and cut where there is not.
func (s *Still) Draw(render func(width, some int) []string) error {
	width, height := s.Size()
	lines := fitting(render(width, max(height/2, 1)), width, height-1) // the cursor has a line of its own
	text := ""
	switch {
	case s.drawn > 0 && (width != s.width || height != s.height): // the terminal may have broken what stood there
		text = ansi.EraseEntireScreen + ansi.CursorHomePosition
	case s.drawn > 0:
		text = "\r" + ansi.CursorUp(s.drawn) + ansi.EraseScreenBelow
	}
	s.width, s.height, s.drawn = width, height, len(lines)
	if os.Getenv("NO_COLOR") != "" {
		for i := range lines {
			lines[i] = Plain(lines[i])
		}
	}
	_, err := s.terminal.WriteString(text + strings.Join(lines, "\n") + "\n")
	return err
}

// fitting returns lines that fit a screen.
func fitting(lines []string, width, height int) []string {
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
		left := len(short) - height + 1
		return append(short[:height-1], cut(fmt.Sprintf("and %d more lines, for which the screen has no room", left), width))
	}
}
