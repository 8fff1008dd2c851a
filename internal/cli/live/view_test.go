//go:build unix

package live_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"

	"github.com/runlevel/runlevel/internal/cli/live"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/pkg/apply"
)

// A testView is a view on a terminal, with its screen.
type testView struct {
	*live.View
	plan     progress.Intent
	keyboard *os.File
	terminal *os.File
	screen   vt10x.Terminal
}

// showView starts a view on a terminal of its own.
func showView(t *testing.T) *testView {
	t.Helper()
	keyboard, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	if err := pty.Setsize(terminal, &pty.Winsize{Cols: 60, Rows: 20}); err != nil {
		t.Fatal(err)
	}
	v := &testView{keyboard: keyboard, terminal: terminal, screen: vt10x.New(vt10x.WithSize(60, 20))}
	go func() { _, _ = io.Copy(v.screen, keyboard) }()
	v.plan = progress.Intent{Title: "update of release shop", Began: time.Now(), Planned: planned([]apply.Wait{
		{Node: "level 10, db", File: "a.yaml", ID: kinds.ID{Kind: "ConfigMap", Name: "a"}},
	})}
	v.View = live.Start(terminal, v.plan, time.Now)
	return v
}

// awaitText waits until the terminal shows a text.
func (v *testView) awaitText(t *testing.T, what string, isSo func(text string) bool) {
	t.Helper()
	for end := time.After(time.Minute); !isSo(v.screen.String()); {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-end:
			t.Fatalf("the screen does not show %s:\n%s", what, v.screen.String())
		}
	}
}

// A view ignores keys, and the terminal shows keys again once the view is closed.
func TestTypingDoesNotGarbleView(t *testing.T) {
	view := showView(t)
	view.awaitText(t, "the view", func(text string) bool { return strings.Contains(text, "level 10") })
	if _, err := view.keyboard.WriteString("typed\r\r\rtyped\r"); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(view, "a line that stays")
	view.awaitText(t, "the view once, below the line", func(text string) bool {
		return strings.HasPrefix(text, "a line that stays") && strings.Count(text, view.plan.Title) == 1 &&
			strings.Count(text, "level 10") == 1
	})
	if text := view.screen.String(); strings.Contains(text, "typed") {
		t.Errorf("the view shows typed keys:\n%s", text)
	}
	view.Stop()
	if _, err := view.keyboard.WriteString("afterwards"); err != nil {
		t.Fatal(err)
	}
	view.awaitText(t, "keys after the view", func(text string) bool {
		return strings.Contains(text, "afterwards")
	})
}

// After Ctrl-Z, the shell writes to the terminal. When the program resumes, it redraws the whole view.
func TestViewIsRedrawnAfterStop(t *testing.T) {
	view := showView(t)
	defer view.Stop()
	fmt.Fprintln(view, "a line that stays")
	view.awaitText(t, "the view", func(text string) bool {
		return strings.Contains(text, "level 10") && strings.Contains(text, "a line that stays")
	})
	fmt.Fprint(view.terminal, "\r\n[1]+ Stopped\r\n$ fg\r\n")
	view.awaitText(t, "the output of the shell", func(text string) bool { return strings.Contains(text, "$ fg") })
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	view.awaitText(t, "the view again, and nothing else", func(text string) bool {
		return !strings.Contains(text, "$ fg") && strings.Count(text, "level 10") == 1 &&
			strings.Count(text, view.plan.Title) == 1 && strings.Count(text, "a line that stays") == 1
	})
}
