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
	drawn         []string // the lines that it shows
	above         []string // lines to print above it, where they stay
	printed       []string // the last lines that were printed above it
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
func (s *Area) Size() (width, height int) {
	width, height, err := term.GetSize(int(s.terminal.Fd()))
	if err != nil || width < 1 || height < 1 {
		return usualWidth, usualHeight
	}
	return width, height
}

// Draw replaces the lines of the area. They are rendered for a width and a number of lines for variable parts. Long
// lines are wrapped if there is room for that, and cut otherwise.
func (s *Area) Draw(render func(width, some int) []string) error {
	width, height := s.Size()
	lines := render(width, max(height/2, 1))
	return s.replace(fitting(lines, width, height-1), width, height) // the last line is for the cursor
}

// replace replaces the lines with lines that fit the screen. If the terminal may have garbled the screen, it draws all
// of the area again, with the lines that were printed last.
func (s *Area) replace(lines []string, width, height int) error {
	if os.Getenv("NO_COLOR") != "" {
		for i := range lines {
			lines[i] = Plain(lines[i])
		}
	}
	var text strings.Builder
	switch isNarrower := width < s.width || height < s.height; {
	case len(s.drawn) > 0 && (isNarrower || s.isOverwritten):
		text.WriteString(ansi.EraseEntireScreen + ansi.CursorHomePosition)
		s.above, s.printed = append(s.printed, s.above...), nil
	case slices.Equal(lines, s.drawn) && len(s.above) == 0:
		return nil
	case len(s.drawn) > 0:
		text.WriteString("\r" + ansi.CursorUp(len(s.drawn)))
	}
	if len(s.above) > 0 { // they may be wrapped
		text.WriteString(ansi.EraseScreenBelow)
	}
	for _, line := range slices.Concat(s.above, lines) {
		text.WriteString(ansi.EraseLineRight + line + "\n")
	}
	text.WriteString(ansi.EraseScreenBelow)
	s.printed = append(s.printed, s.above...)
	s.printed = s.printed[max(0, len(s.printed)-height):]
	s.width, s.height, s.drawn, s.above, s.isOverwritten = width, height, lines, nil, false
	_, err := s.terminal.WriteString(text.String())
	return err
}

// fitting returns the lines, wrapped or cut to fit a screen.
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
		hidden := len(short) - height + 1
		return append(short[:height-1],
			cut(fmt.Sprintf("and %d more lines that do not fit on the screen", hidden), width))
	}
}
