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

	"github.com/runlevel/runlevel/internal/live"
	"github.com/runlevel/runlevel/pkg/kinds"
)

// After Ctrl-Z the shell writes to the terminal. When the program goes on, all is drawn anew.
func TestAViewThatGoesOnIsDrawnAnew(t *testing.T) {
	reader, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if err := pty.Setsize(terminal, &pty.Winsize{Cols: 60, Rows: 20}); err != nil {
		t.Fatal(err)
	}
	screen := vt10x.New(vt10x.WithSize(60, 20))
	go func() { _, _ = io.Copy(screen, reader) }()
	shows := func(what string, isSo func(text string) bool) {
		t.Helper()
		for end := time.After(time.Minute); !isSo(screen.String()); {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-end:
				t.Fatalf("never shown: %s\n%s", what, screen.String())
			}
		}
	}

	plan := live.Plan{Title: "update of release shop", Began: time.Now(), Items: []live.Item{
		{Level: "10", Component: "db", File: "a.yaml", ID: kinds.ID{Kind: "ConfigMap", Name: "a"}},
	}}
	view := live.Start(terminal, plan, time.Now)
	defer view.Stop()
	fmt.Fprintln(view, "a line that stays")
	shows("the view", func(text string) bool {
		return strings.Contains(text, "level 10") && strings.Contains(text, "a line that stays")
	})
	fmt.Fprint(terminal, "\r\n[1]+ Stopped\r\n$ fg\r\n")
	shows("what the shell says", func(text string) bool { return strings.Contains(text, "$ fg") })
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	shows("the view again, and nothing else", func(text string) bool {
		return !strings.Contains(text, "$ fg") && strings.Count(text, "level 10") == 1 && strings.Count(text, plan.Title) == 1 && strings.Count(text, "a line that stays") == 1
	})
}
