package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// downTimeout is how long the owner of a sandbox may take to stop it.
	downTimeout = 10 * time.Second
	// downInterval is how often Down checks whether it has stopped.
	downInterval = 20 * time.Millisecond
)

// Down stops the sandbox of that name, which another process owns: it sends SIGTERM to
// the owner, and SIGKILL if it does not end, which ends its components too.
func Down(ctx context.Context, name string) error {
	state, err := Find(name)
	if err != nil {
		return err
	}
	owner, err := os.FindProcess(state.PID)
	if err != nil {
		return fmt.Errorf("find the owner of sandbox %s: %w", name, err)
	}
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Kill} {
		if err := owner.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop sandbox %s: %w", name, err)
		}
		gone, err := awaitEnd(ctx, state)
		if gone || err != nil {
			return err
		}
	}
	return fmt.Errorf("stop sandbox %s: process %d does not end", name, state.PID)
}

// awaitEnd waits up to downTimeout for a sandbox to end, and reports whether it did.
func awaitEnd(ctx context.Context, was Status) (bool, error) {
	err := wait.PollUntilContextTimeout(ctx, downInterval, downTimeout, true, func(context.Context) (bool, error) {
		now, err := Find(was.Name)
		return errors.Is(err, ErrNotRunning) || (err == nil && now.PID != was.PID), nil
	})
	if ctx.Err() != nil {
		return false, fmt.Errorf("wait until sandbox %s has stopped: %w", was.Name, context.Cause(ctx))
	}
	return err == nil, nil
}
