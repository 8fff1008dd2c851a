package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
	"github.com/rogpeppe/go-internal/testscript"
)

// terminal runs a command whose standard error is a terminal, until the screen matches, and prints the screen. Then it
// presses Ctrl-C, and prints the screen again at the end: terminal SIZE REGEXP COMMAND... Standard output is the
// script's standard error. Times are shown as N. The script fails if the cursor stays hidden, or if the command queries
// the terminal.
func terminal(ts *testscript.TestScript, _ bool, args []string) {
	onTerminal(ts, args, func(c *exec.Cmd, device *os.File) { c.Stdout, c.Stderr = ts.Stderr(), device })
}

// terminalAnswer is terminal for a command that asks, and gets an answer with a line from the keyboard, in place of
// Ctrl-C: terminal-answer SIZE REGEXP ANSWER COMMAND...
func terminalAnswer(ts *testscript.TestScript, _ bool, args []string) {
	s := open(ts, args[0])
	s.answer = args[2] + "\n"
	s.run(ts, append([]string{args[0], args[1]}, args[3:]...), func(c *exec.Cmd, device *os.File) {
		c.Stdin, c.Stdout, c.Stderr = device, ts.Stderr(), device
	})
}

// terminalOut is terminal for a command whose standard output is the terminal, too: terminal-out SIZE REGEXP COMMAND...
func terminalOut(ts *testscript.TestScript, _ bool, args []string) {
	onTerminal(ts, args, func(c *exec.Cmd, device *os.File) { c.Stdout, c.Stderr = device, device })
}

func onTerminal(ts *testscript.TestScript, args []string, connect func(*exec.Cmd, *os.File)) {
	open(ts, args[0]).run(ts, args, connect)
}

func (tt *testTerminal) run(ts *testscript.TestScript, args []string, connect func(*exec.Cmd, *os.File)) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	defer tt.device.Close()
	command := exec.CommandContext(ctx, args[2], args[3:]...)
	command.Dir = ts.Getenv("WORK")
	connect(command, tt.device)
	command.Env = os.Environ()
	for _, name := range []string{"HOME", "KUBECONFIG", "TERM", "NO_COLOR"} {
		command.Env = append(command.Env, name+"="+ts.Getenv(name))
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ts.Check(command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()

	if tt.awaitScreen(ctx, regexp.MustCompile(args[1]), ended) {
		fmt.Fprintf(ts.Stdout(), "== screen ==\n%s", tt.text())
		if tt.answer != "" {
			_, err := io.WriteString(tt.keyboard, tt.answer)
			ts.Check(err)
		} else {
			ts.Check(command.Process.Signal(syscall.SIGINT))
		}
		<-ended
	}
	ts.Check(tt.device.Close())
	<-tt.drained
	if !tt.emulator.CursorVisible() {
		ts.Fatalf("the cursor is hidden")
	}
	if requested := questions.FindString(tt.raw.String()); requested != "" {
		ts.Fatalf("the terminal is sent %q", requested)
	}
	fmt.Fprintf(ts.Stdout(), "== at the end ==\n%s", tt.text())
}

// A testTerminal is a terminal with its screen.
type testTerminal struct {
	device   *os.File
	keyboard *os.File // receives the keys that a user types
	answer   string   // "" is Ctrl-C
	emulator vt10x.Terminal
	written  chan struct{} // receives a value after each output
	drained  chan struct{}
	mu       sync.Mutex
	raw      bytes.Buffer // the whole output
}

// questions are sequences that a terminal answers as if a user had typed, or that change the codes of
// keys: then Ctrl-C may no longer be a signal. Libraries do so for programs that read keys.
var questions = regexp.MustCompile(`\x1b\[([=<>?][0-9;]*u|>[0-9;]*m|\?[0-9;]*\$p|[=>?]?[0-9]*[cn])`)

// open creates a terminal of a size such as 80x24.
func open(ts *testscript.TestScript, size string) *testTerminal {
	var width, height int
	_, err := fmt.Sscanf(size, "%dx%d", &width, &height)
	ts.Check(err)
	reader, device, err := pty.Open()
	ts.Check(err)
	ts.Check(pty.Setsize(device, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)}))
	s := &testTerminal{
		device:   device,
		keyboard: reader,
		emulator: vt10x.New(vt10x.WithSize(width, height)),
		written:  make(chan struct{}, 1),
		drained:  make(chan struct{}),
	}
	go func() {
		defer close(s.drained)
		defer reader.Close()
		_, _ = io.Copy(s, reader) // ends with an error when the device is closed
	}()
	return s
}

func (tt *testTerminal) Write(text []byte) (int, error) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.raw.Write(text)
	n, err := tt.emulator.Write(text)
	select {
	case tt.written <- struct{}{}:
	default:
	}
	return n, err
}

// awaitScreen waits until the screen matches wanted, and reports whether it did before the command ended.
func (tt *testTerminal) awaitScreen(ctx context.Context, wanted *regexp.Regexp, ended chan error) bool {
	for !wanted.MatchString(tt.text()) {
		select {
		case <-tt.written:
		case err := <-ended:
			ended <- err
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

var (
	trailing = regexp.MustCompile(`(?m)[ \t]+$`)
	ages     = regexp.MustCompile(` *\b\d+(\.\d+)?m?s\b`)
)

// text returns the screen without parts that differ from run to run.
func (tt *testTerminal) text() string {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	text := ages.ReplaceAllString(trailing.ReplaceAllString(tt.emulator.String(), ""), " N")
	return strings.TrimRight(text, "\n") + "\n"
}
