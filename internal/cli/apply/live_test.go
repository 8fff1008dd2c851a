package apply

import (
	"testing"

	"github.com/creack/pty"

	"github.com/runlevel/runlevel/internal/cli/live"
)

// A terminal without a size would show nothing of an apply until its end: it gets lines.
func TestLiveViewNeedsTerminalSize(t *testing.T) {
	t.Setenv("TERM", "xterm")
	for name, row := range map[string]struct {
		size pty.Winsize
		want bool
	}{
		"a window":  {pty.Winsize{Cols: 80, Rows: 24}, true},
		"no size":   {pty.Winsize{}, false},
		"no height": {pty.Winsize{Cols: 80}, false},
	} {
		t.Run(name, func(t *testing.T) {
			reader, device, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			defer device.Close()
			if err := pty.Setsize(device, &row.size); err != nil {
				t.Fatal(err)
			}
			if has := live.TerminalOf(device) != nil; has != row.want {
				t.Errorf("got a live view: %t, want %t", has, row.want)
			}
		})
	}
}
