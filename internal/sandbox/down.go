package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

const (
	// patience is how long the owner of a sandbox may take to stop it.
	patience = 10 * time.Second
	// glance is how often we look whether it has.
	glance = 20 * time.Millisecond
)

// Down stops the sandbox of that name, which another process owns: it is asked
// to stop, and killed if it does not, which takes its components along.
func Down(ctx context.Context, name string) error {
	state, err := Find(name)
	if err != nil {
		return err
	}
	owner, err := os.FindProcess(state.PID)
	if err != nil {
		return fmt.Errorf("find the owner of sandbox %s: %w", name, err)
	}
	if err := owner.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop sandbox %s: %w", name, err)
	}
	asked, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := awaitEnd(asked, name); err == nil || ctx.Err() != nil {
		return err
	}
	_ = owner.Kill()
	if err := awaitEnd(ctx, name); err != nil {
		return err
	}
	_, err = List() // which removes what it left behind
	return err
}

// awaitEnd waits until the owner of a sandbox has let go of its lock.
func awaitEnd(ctx context.Context, name string) error {
	dir, err := homes()
	if err != nil {
		return err
	}
	// Without O_CREATE: the folder may be about to vanish.
	lock := flock.New(filepath.Join(dir, name, lockFile), flock.SetFlag(os.O_RDONLY))
	defer lock.Close()
	if _, err = lock.TryLockContext(ctx, glance); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("wait until sandbox %s has stopped: %w", name, err)
	}
	return nil
}
