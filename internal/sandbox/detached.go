package sandbox

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/runlevel/runlevel/internal/sandbox/component"
)

const (
	ownerTimeout  = 10 * time.Second       // how long the owner of a sandbox may take to stop it
	ownerInterval = 200 * time.Millisecond // at which the state of its sandbox is read
)

// StartDetached starts a program that owns a sandbox with these options, and waits until that is ready. If the program
// ends before, the error is what it has written, without the prefix.
func StartDetached(ctx context.Context, o Options, owner *exec.Cmd, prefix string) error {
	// Slow steps run here, where the user sees their progress.
	if err := Prepare(ctx, o); err != nil {
		return err
	}
	log, err := os.CreateTemp("", "runlevel-sandbox-")
	if err != nil {
		return err
	}
	defer os.Remove(log.Name())
	defer log.Close()
	owner.Stdout, owner.Stderr, owner.SysProcAttr = log, log, component.Detached()
	if err := owner.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- owner.Wait() }()
	err = awaitOwned(ctx, o.Name, owner.Process, ended)
	if !errors.Is(err, errOwnerEnded) {
		return err
	}
	text, _ := os.ReadFile(log.Name())
	reported := strings.TrimPrefix(strings.TrimSpace(string(text)), prefix)
	return errors.New(cmp.Or(reported, err.Error()))
}

var errOwnerEnded = errors.New("the sandbox ended before it was ready")

// awaitOwned waits until the sandbox of an owner is ready. If it returns an error, the owner has ended.
func awaitOwned(ctx context.Context, name string, owner *os.Process, ended <-chan error) error {
	tick := time.NewTicker(ownerInterval)
	defer tick.Stop()
	for {
		state, err := Find(name)
		if err == nil && state.Ready && state.PID == owner.Pid {
			return nil
		}
		select {
		case <-ctx.Done():
			endOwner(owner, ended)
			return context.Cause(ctx)
		case err := <-ended:
			return errors.Join(errOwnerEnded, err)
		case <-tick.C:
		}
	}
}

// endOwner terminates an owner, and kills it after ownerTimeout.
func endOwner(owner *os.Process, ended <-chan error) {
	_ = owner.Signal(syscall.SIGTERM) // it may just have ended
	select {
	case <-ended:
	case <-time.After(ownerTimeout):
		_ = owner.Kill()
		<-ended
	}
}
