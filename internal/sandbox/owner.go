package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/sandbox/childprocess"
)

const (
	// ownerTimeout is the time that the owner of a sandbox has to stop it after SIGTERM.
	ownerTimeout = 10 * time.Second
	// startInterval is the interval at which StartDetached reads the state of the sandbox.
	startInterval = 200 * time.Millisecond
	// stopInterval is the interval at which Down reads the state of the sandbox.
	stopInterval = 20 * time.Millisecond
)

// errOwnerExited is the error of an owner that exits during the start.
var errOwnerExited = errors.New("the sandbox ended before it was ready")

// StartDetached starts a program that owns a sandbox with these options, and waits until the sandbox is ready. If the
// program exits before that, StartDetached returns the program's output, without the prefix, as an error.
func StartDetached(ctx context.Context, o Options, owner *exec.Cmd, prefix string) error {
	// This process prepares the start, so that the user sees the progress.
	if err := Prepare(ctx, o); err != nil {
		return err
	}
	log, err := os.CreateTemp("", "runlevel-sandbox-")
	if err != nil {
		return err
	}
	defer os.Remove(log.Name())
	defer log.Close()
	owner.Stdout, owner.Stderr = log, log
	owner.SysProcAttr = childprocess.Detached()
	if err := owner.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- owner.Wait() }()
	err = awaitOwner(ctx, o.Name, owner.Process, exited)
	if !errors.Is(err, errOwnerExited) {
		return err
	}
	text, _ := os.ReadFile(log.Name())
	reported := strings.TrimPrefix(strings.TrimSpace(string(text)), prefix)
	return errors.New(cmp.Or(reported, err.Error()))
}

// awaitOwner waits until the sandbox of an owner is ready. If it returns an error, the owner has exited.
func awaitOwner(ctx context.Context, name string, owner *os.Process, exited <-chan error) error {
	tick := time.NewTicker(startInterval)
	defer tick.Stop()
	for {
		state, err := Find(name)
		if err == nil && state.Ready && state.PID == owner.Pid {
			return nil
		}
		select {
		case <-ctx.Done():
			endOwner(owner, exited)
			return context.Cause(ctx)
		case err := <-exited:
			return errors.Join(errOwnerExited, err)
		case <-tick.C:
		}
	}
}

// endOwner terminates an owner, and kills it after ownerTimeout.
func endOwner(owner *os.Process, exited <-chan error) {
	_ = owner.Signal(syscall.SIGTERM) // fails if the owner has just exited
	select {
	case <-exited:
	case <-time.After(ownerTimeout):
		_ = owner.Kill()
		<-exited
	}
}

// Down stops the sandbox of that name, which another process owns: it sends SIGTERM to the owner, and SIGKILL if the
// owner does not exit, which ends its components, too.
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
		err := wait.PollUntilContextTimeout(ctx, stopInterval, ownerTimeout, true, state.hasEnded)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait until sandbox %s has stopped: %w", name, context.Cause(ctx))
		}
	}
	return fmt.Errorf("stop sandbox %s: process %d does not exit", name, state.PID)
}

// hasEnded reports whether the sandbox has ended. Another sandbox may have its name.
func (s Status) hasEnded(context.Context) (bool, error) {
	current, err := Find(s.Name)
	return errors.Is(err, ErrNotRunning) || (err == nil && current.PID != s.PID), nil
}
