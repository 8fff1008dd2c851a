package sandbox

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/runlevel/runlevel/internal/sandbox/component"
)

// RunWith starts a sandbox, runs a command with its kubeconfig, and stops it. That the command fails is no
// error: it has its state.
func RunWith(ctx context.Context, o Options, command *exec.Cmd) (err error) {
	s, err := Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := s.Stop(); stopErr != nil {
			err = errors.Join(err, stopErr)
		}
	}()
	// The thread must live as long as the command, which dies with it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "RUNLEVEL_SANDBOX_REGISTRY="+s.Registry)
	command.SysProcAttr = component.DieWithParent()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	defer signal.Stop(signals)
	if ctx.Err() != nil {
		return context.Cause(ctx) // interrupted meanwhile
	}
	if err := command.Start(); err != nil {
		return err
	}
	if err = forward(command, signals); errors.As(err, new(*exec.ExitError)) {
		err = nil
	}
	select {
	case death := <-s.Died(): // perhaps the cause
		return errors.Join(err, death)
	default:
		return err
	}
}

// forward waits for the end of a command, and forwards signals to it. The terminal sends Ctrl-C to the command itself,
// which need not end then: an interactive shell does not.
func forward(command *exec.Cmd, signals <-chan os.Signal) error {
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	for {
		select {
		case err := <-ended:
			return err
		case request := <-signals:
			_ = command.Process.Signal(request) // it may just have ended
		}
	}
}
