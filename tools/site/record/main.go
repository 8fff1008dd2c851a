// Command record writes docs/demo.svg: a terminal in which Runlevel installs and updates examples/hello.
//
// It types the script below into a shell, and draws what the terminal shows, so that the live view is recorded with its
// colours. Pauses are cut. It is not a general recorder: it knows the prompt and the question of the script. A command
// that fails ends the recording. "make demo-svg" runs it, on a sandbox. Start with record.
package main

import (
	"fmt"
	"html"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
)

const (
	columns, rows = 80, 20
	maxPause      = 1500 * time.Millisecond // in which nothing changes
	frameGap      = 50 * time.Millisecond   // output within it is one frame
	keyTime       = 60 * time.Millisecond
)

// script has what is typed when the row of the cursor ends with a text.
var script = []struct{ after, text string }{
	{"$", "runlevel apply examples/hello/1.0.0"},
	{"$", "runlevel apply examples/hello/1.1.0"},
	{"[y/N]", "y"},
	{"$", ""},
}

func main() {
	picture, err := record()
	if err == nil {
		err = os.WriteFile("docs/demo.svg", []byte(picture), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

// A frame is what the terminal shows from a time on.
type frame struct {
	rows  [rows]string
	since time.Duration
}

// record plays the script, and returns the picture.
func record() (string, error) {
	shell := exec.Command("sh", "-ei")
	shell.Env = append(os.Environ(), "TERM=xterm-256color", "PS1=\x1b[32m$\x1b[m ", "PATH=bin:"+os.Getenv("PATH"))
	terminal, err := pty.StartWithSize(shell, &pty.Winsize{Cols: columns, Rows: rows})
	if err != nil {
		return "", err
	}
	defer terminal.Close()
	screen := vt10x.New(vt10x.WithSize(columns, rows))
	frames, last, still := []frame{{}}, time.Now(), time.Duration(0)
	buffer, ready := make([]byte, 32<<10), make(chan bool, 1) // to type
	ready <- true
	for step := 0; ; {
		count, err := terminal.Read(buffer)
		if err != nil {
			return "", fmt.Errorf("the shell ended: %w\n%s", err, screen)
		}
		// vt10x does not know faint text, so that becomes grey.
		_, _ = screen.Write([]byte(strings.ReplaceAll(string(buffer[:count]), "\x1b[2m", "\x1b[90m")))
		if pause := time.Since(last); pause > frameGap {
			frames = append(frames, frame{since: frames[len(frames)-1].since + min(pause, maxPause)})
			last = time.Now()
		}
		now := &frames[len(frames)-1]
		for y := range rows {
			now.rows[y] = drawRow(screen, y)
		}
		lines := strings.Split(screen.String(), "\n")
		if strings.Contains(screen.String(), "recent events") { // the levels
			still = now.since
		}
		if !strings.HasSuffix(strings.TrimSpace(lines[screen.Cursor().Y]), script[step].after) {
			continue
		}
		if script[step].text == "" {
			return draw(frames, still), nil
		}
		select {
		case <-ready:
			go enter(terminal, script[step].text, ready)
			step++
		default:
		}
	}
}

// enter types a line, which the terminal shows. If the shell has ended, reading from the terminal reports it.
func enter(terminal *os.File, line string, ready chan<- bool) {
	<-time.After(maxPause)
	for _, letter := range line {
		_, _ = terminal.WriteString(string(letter))
		<-time.After(keyTime)
	}
	ready <- true
	_, _ = terminal.WriteString("\r")
}

// Sizes of the picture.
const (
	cellWidth, cellHeight = 8.4, 19
	left, top             = 18, 58 // of the first line of text
	width, height         = 2*left + columns*cellWidth, top + rows*cellHeight
)

// layout has the sizes, the duration, the time at which the picture begins, the keyframes and the rows.
const layout = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]g %[2]d" width="%[1]g" height="%[2]d" role="img" aria-labelledby="t d">
<title id="t">Runlevel in a terminal</title>
<desc id="d">A recording of runlevel apply, twice. The first apply installs version 1.0.0 of a release, level by level. The second lists the changes and deletes of an update to 1.1.0, asks, and updates.</desc>
<style>
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#e6edf3;white-space:pre}
.b{font-weight:700}.s{fill:#9aa4b2}.r{fill:#ff8f87}.g{fill:#4cc35e}.y{fill:#e0ab3e}
.f{visibility:hidden;animation:%.2[3]fs step-end -%.2[4]fs infinite}.still{visibility:visible}
@media(prefers-reduced-motion:reduce){.f{animation:none!important}}
%[5]s</style>
<rect width="%[1]g" height="%[2]d" rx="10" fill="#10151d"/>
<circle cx="22" cy="20" r="6" fill="#ff8f87"/><circle cx="42" cy="20" r="6" fill="#e0ab3e"/><circle cx="62" cy="20" r="6" fill="#4cc35e"/>
%[6]s</svg>
`

// draw returns the picture: the text of each row, visible from the frame in which it appears until it changes. The
// picture begins with the still frame, and without animation, it is that.
func draw(frames []frame, still time.Duration) string {
	total := frames[len(frames)-1].since + 2*maxPause
	frames = append(frames, frame{since: total})
	percent := func(t time.Duration) float64 { return 100 * t.Seconds() / total.Seconds() }
	var keyframes, body strings.Builder
	for y := range rows {
		first := frames[0]
		for _, next := range frames[1:] {
			if next.rows[y] == first.rows[y] && next.since < total {
				continue
			}
			if first.rows[y] != "" {
				class := fmt.Sprintf("k%d-%d", y, first.since.Milliseconds())
				fmt.Fprintf(&keyframes, ".%s{animation-name:%[1]s}@keyframes %[1]s{0%%{visibility:hidden}", class)
				fmt.Fprintf(&keyframes, "%.5g%%{visibility:visible}", percent(first.since))
				fmt.Fprintf(&keyframes, "%.5g%%{visibility:hidden}}\n", percent(next.since))
				if first.since <= still && still < next.since {
					class += " still"
				}
				fmt.Fprintf(&body, "<g class=\"f %s\">%s</g>\n", class, first.rows[y])
			}
			first = next
		}
	}
	return fmt.Sprintf(layout, width, height, total.Seconds(), still.Seconds(), keyframes.String(), body.String())
}

// drawRow returns the text of a row.
func drawRow(screen vt10x.Terminal, y int) string {
	var row, style string
	cursor := screen.Cursor()
	for x := range columns {
		cell := screen.Cell(x, y)
		if x == cursor.X && y == cursor.Y && screen.CursorVisible() {
			cell.Char = '█'
		}
		if next := styleOf(cell); next != style {
			row += "</tspan><tspan class=\"" + next + "\">"
			style = next
		}
		row += html.EscapeString(string(max(cell.Char, ' ')))
	}
	if row = strings.TrimRight(row, " "); row == "" {
		return ""
	}
	return fmt.Sprintf("<text x=\"%d\" y=\"%d\"><tspan>%s</tspan></text>", left, top+y*cellHeight, row)
}

// styleOf returns the classes of a cell. Bold text of a colour has the light variant of the colour.
func styleOf(cell vt10x.Glyph) string {
	const bold = 1 << 2 // vt10x does not export it
	class := map[vt10x.Color]string{
		vt10x.Red: "r", vt10x.LightRed: "r", vt10x.Green: "g", vt10x.LightGreen: "g",
		vt10x.Yellow: "y", vt10x.LightYellow: "y", vt10x.DarkGrey: "s",
	}[cell.FG]
	if cell.Mode&bold != 0 {
		class += " b"
	}
	return class
}
