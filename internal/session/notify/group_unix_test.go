//go:build unix

package notify_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session/notify"
)

// TestHangingCommandIsKilled is killed, and so are the programs that it has started.
func TestHangingCommandIsKilled(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	s := newSender(t, "sleep 600 & echo $! > "+file+".new; mv "+file+".new "+file+"; wait")
	send(s, notify.Begun)
	var pid int
	sandboxtest.EventuallySucceeds(t, func(context.Context) error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err
	})
	if err := s.Close(time.Millisecond); err == nil ||
		!strings.HasPrefix(err.Error(), "command sleep… did not get 1 notification") {
		t.Error(err)
	}
	sandboxtest.EventuallySucceeds(t, func(context.Context) error {
		if syscall.Kill(pid, 0) == nil {
			return fmt.Errorf("process %d still runs", pid)
		}
		return nil
	})
}
