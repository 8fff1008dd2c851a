// Command record writes docs/demo.svg: a terminal in which Runlevel installs and updates examples/hello on a sandbox of
// its own.
//
// The commands run in a pseudo terminal, so that the live view is recorded with its colours. Their output is shown half
// as fast as it was printed: on a sandbox, an apply takes a few seconds. It is not a general recorder: it plays the
// script below. "make demo-svg" runs it, on a sandbox. Start with record.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
)

const (
	root          = "../.."
	columns, rows = 100, 28
	slowness      = 2                      // output is shown half as fast as it was printed
	maxPause      = 900 * time.Millisecond // in which nothing changes while a command runs
	frameGap      = 25 * time.Millisecond  // output within it is one frame
	keyTime       = 50 * time.Millisecond
	readingTime   = 1500 * time.Millisecond
	prompt        = "\x1b[32m$\x1b[m "
	clear         = "\x1b[H\x1b[2J"
	question      = "[y/N] "
)

// script has the lines that are typed. An empty one clears the screen.
var script = []string{
	"runlevel apply examples/hello/1.0.0",
	"",
	"runlevel apply examples/hello/1.1.0",
	"runlevel history",
}

func main() {
	r := recorder{screen: vt10x.New(vt10x.WithSize(columns, rows))}
	if err := r.record(); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

// record plays the script, and writes the picture.
func (r *recorder) record() error {
	for _, line := range script {
		if line == "" {
			r.write(clear)
			continue
		}
		if err := r.play(line); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	r.write(prompt + "█")
	r.show(2 * readingTime)
	return os.WriteFile(root+"/docs/demo.svg", []byte(draw(r.frames)), 0o644)
}

// A recorder has a terminal and the pictures that were taken of it.
type recorder struct {
	screen vt10x.Terminal
	frames []frame
}

// A frame is the screen for some time.
type frame struct {
	rows [rows][]vt10x.Glyph
	time time.Duration
}

// write shows text on the terminal, which is in memory and returns no error. It does not know faint text, so that
// becomes grey.
func (r *recorder) write(text string) {
	_, _ = io.WriteString(r.screen, strings.ReplaceAll(text, "\x1b[2m", "\x1b[90m"))
}

// show adds a frame.
func (r *recorder) show(duration time.Duration) {
	picture := frame{time: duration}
	for y := range rows {
		for x := range columns {
			picture.rows[y] = append(picture.rows[y], r.screen.Cell(x, y))
		}
	}
	r.frames = append(r.frames, picture)
}

// play types a line and runs it.
func (r *recorder) play(line string) error {
	r.write(prompt)
	r.typeText(line)
	r.write("\r\n")
	command := exec.Command("bin/runlevel", strings.Fields(line)[1:]...)
	command.Dir, command.Env = root, append(os.Environ(), "TERM=xterm-256color")
	terminal, err := pty.StartWithSize(command, &pty.Winsize{Cols: columns, Rows: rows})
	if err != nil {
		return err
	}
	defer terminal.Close()
	printed := make(chan string)
	go func() {
		defer close(printed)
		buffer := make([]byte, 32<<10)
		for {
			count, err := terminal.Read(buffer)
			if err != nil { // the program has ended
				return
			}
			printed <- string(buffer[:count])
		}
	}()
	r.follow(terminal, printed)
	return command.Wait()
}

// follow adds frames of the text that a program prints, and answers its question.
func (r *recorder) follow(terminal io.Writer, printed <-chan string) {
	quiet := time.NewTimer(time.Hour)
	shown := time.Now()
	show := func() {
		previous := &r.frames[len(r.frames)-1].time
		*previous = max(*previous, min(slowness*time.Since(shown), maxPause))
		r.show(0)
		shown = time.Now()
	}
	for {
		select {
		case text, ok := <-printed:
			if !ok {
				show()
				r.show(readingTime)
				return
			}
			r.write(text)
			quiet.Reset(frameGap)
		case <-quiet.C:
			show()
			if row := r.screen.Cursor().Y; strings.Contains(strings.Split(r.screen.String(), "\n")[row], question) {
				r.write("█\b")
				r.show(2 * readingTime)
				_, _ = io.WriteString(terminal, "y\r") // echoed; if the program has ended, its exit code reports it
			}
		}
	}
}

// typeText shows text, letter by letter, before a cursor.
func (r *recorder) typeText(text string) {
	for i, letter := range text {
		r.write(string(letter) + "█\b")
		if i%2 == 0 || i == len(text)-1 {
			r.show(keyTime)
		}
	}
	r.show(4 * keyTime)
	r.write(" \b")
}
