package live

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// A Still is a text on a terminal that is drawn again in its place.
type Still struct {
	terminal      *os.File
	width, height int
	drawn         []string // what it shows
	above         []string // lines that are yet to be printed above it, and stay
	printed       []string // the last of those that were
	isSpoilt      bool     // another program has written to the terminal
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
	lines := render(width, max(height/2, 1))
	return s.replace(fitting(lines, width, height-1), width, height) // the cursor has a line of its own
}

// replace draws lines that fit a screen in place of those before. Where the terminal may have broken what stood there, all is
// drawn again, with what was printed last.
func (s *Still) replace(lines []string, width, height int) error {
	if os.Getenv("NO_COLOR") != "" {
		for i := range lines {
			lines[i] = Plain(lines[i])
		}
	}
	var text strings.Builder
	switch isNarrower := width < s.width || height < s.height; {
	case len(s.drawn) > 0 && (isNarrower || s.isSpoilt):
		text.WriteString(ansi.EraseEntireScreen + ansi.CursorHomePosition)
		s.above, s.printed = append(s.printed, s.above...), nil
	case slices.Equal(lines, s.drawn) && len(s.above) == 0:
		return nil
	case len(s.drawn) > 0:
		text.WriteString("\r" + ansi.CursorUp(len(s.drawn)))
	}
	if len(s.above) > 0 { // which may take more than a line each
		text.WriteString(ansi.EraseScreenBelow)
	}
	for _, line := range slices.Concat(s.above, lines) {
		text.WriteString(ansi.EraseLineRight + line + "\n")
	}
	text.WriteString(ansi.EraseScreenBelow)
	s.printed = append(s.printed, s.above...)
	s.printed = s.printed[max(0, len(s.printed)-height):]
	s.width, s.height, s.drawn, s.above, s.isSpoilt = width, height, lines, nil, false
	_, err := s.terminal.WriteString(text.String())
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
