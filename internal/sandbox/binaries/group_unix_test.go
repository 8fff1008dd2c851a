//go:build unix

package binaries

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// TestInterruptedBuildEndsItsCompilers checks that the compilers are interrupted, too: the go command waits for them.
func TestInterruptedBuildEndsItsCompilers(t *testing.T) {
	s := newStore(t, tiny)
	ctx, cancel := context.WithCancel(t.Context())
	compiler := filepath.Join(t.TempDir(), "compiler")
	fakeGo(t, "trap : INT\nsh -c 'echo $$ > "+compiler+".new; mv "+compiler+".new "+compiler+
		"; exec sleep 600'\nexit 1")
	go func() {
		defer cancel()
		_ = wait.PollUntilContextTimeout(ctx, time.Millisecond, 5*time.Minute, true,
			func(context.Context) (bool, error) {
				_, err := os.Stat(compiler)
				return err == nil, nil
			})
	}()
	if _, err := s.ensure(ctx, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("the interrupted build returned %v, want context.Canceled", err)
	}
	text, err := os.ReadFile(compiler)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || syscall.Kill(pid, 0) == nil {
		t.Errorf("compiler %s still runs: %v", text, err)
	}
}
