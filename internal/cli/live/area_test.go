package live_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"

	"github.com/runlevel/runlevel/internal/cli/live"
)

// drawTexts draws texts on a terminal, each in place of the one before, and returns the lines that the terminal shows.
func drawTexts(t *testing.T, width, height int, texts ...string) string {
	t.Helper()
	reader, device, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer device.Close()
	if err := pty.Setsize(device, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)}); err != nil {
		t.Fatal(err)
	}
	emulator := vt10x.New(vt10x.WithSize(width, height))
	fmt.Fprint(emulator, "$ runlevel\r\n")
	area := live.NewArea(device)
	const end = '\x00'
	for _, text := range texts {
		if err := area.Draw(func(int, int) []string { return strings.Split(text, "\n") }); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintf(device, "%c", end)
	copyUntil(t, emulator, reader, end)
	var lines []string
	for line := range strings.Lines(emulator.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// copyUntil copies the output of a file to a terminal, up to an end byte.
func copyUntil(t *testing.T, terminal vt10x.Terminal, source *os.File, end byte) {
	t.Helper()
	text, err := bufio.NewReader(source).ReadString(end)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(terminal, strings.TrimSuffix(text, string(end)))
}

func TestRedrawReplacesLines(t *testing.T) {
	for name, c := range map[string]struct {
		width, height int
		texts         []string
		want          string
	}{
		"another text, earlier lines stay": {40, 10, []string{"one\ntwo\nthree", "four\nfive"},
			"$ runlevel\nfour\nfive"},
		"a longer text": {40, 10, []string{"one", "two\nthree"}, "$ runlevel\ntwo\nthree"},
		"a long line is wrapped": {30, 10, []string{"one", "a line that is longer than the screen\nend"},
			"$ runlevel\na line that is longer than\n  the screen\nend"},
		"a long line without room is cut": {30, 4,
			[]string{"a line that is longer than the screen\nb\nc", "a line that is longer than the screen\nd\ne"},
			"a line that is longer than th…\nd\ne"},
		"lines without room are counted": {60, 4, []string{"a\nb\nc\nd\ne", "f\ng\nh\ni\nj"},
			"f\ng\nand 3 more lines that do not fit on the screen"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := drawTexts(t, c.width, c.height, c.texts...); got != c.want {
				t.Errorf("the screen is\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}
