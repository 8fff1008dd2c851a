package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
	"github.com/runlevel/runlevel/internal/sandbox/childprocess"
	"github.com/runlevel/runlevel/internal/sandbox/realnode"
)

// RunWith starts a sandbox, runs a command with its kubeconfig, and stops the sandbox. If the command fails, RunWith
// returns no error: the command has its exit status.
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
	// The kernel kills the command when the thread that starts it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "RUNLEVEL_SANDBOX_REGISTRY="+s.Registry)
	command.SysProcAttr = childprocess.DieWithParent()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	defer signal.Stop(signals)
	if ctx.Err() != nil {
		return context.Cause(ctx) // interrupted during the start
	}
	if err := command.Start(); err != nil {
		return err
	}
	if err = forward(command, signals); errors.As(err, new(*exec.ExitError)) {
		err = nil
	}
	select {
	case failure := <-s.Died(): // perhaps the cause
		return errors.Join(err, failure)
	default:
		return err
	}
}

// forward waits until a command exits, and forwards signals to the command. The terminal itself sends Ctrl-C to the
// command, which may continue, as an interactive shell does.
func forward(command *exec.Cmd, signals <-chan os.Signal) error {
	exited := make(chan error, 1)
	go func() { exited <- command.Wait() }()
	for {
		select {
		case err := <-exited:
			return err
		case request := <-signals:
			_ = command.Process.Signal(request) // fails if the command has just exited
		}
	}
}

// ErrOptions marks an error in the options of Start, or in the files that the options name. Start has started no
// process then.
var ErrOptions = errors.New("wrong options")

// Prepare builds the programs ahead of time, and checks the options.
func Prepare(ctx context.Context, o Options) error {
	_, err := prepareStart(ctx, o)
	return err
}

// The startInputs are the files and programs that every attempt of a start needs.
type startInputs struct {
	crds            []*unstructured.Unstructured
	programs        map[string]string // files of the control plane's programs
	node            realnode.Programs
	emulatedVersion string // version of Kubernetes; "" for that of the programs
}

func prepareStart(ctx context.Context, o Options) (inputs startInputs, err error) {
	if err := o.validate(); err != nil {
		return inputs, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if inputs.crds, err = readCRDs(o.CRDs); err != nil {
		return inputs, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if o.RealNodes > 0 {
		if inputs.node, err = realnode.FindPrograms(); err != nil {
			return inputs, fmt.Errorf("%w: %w", ErrOptions, err)
		}
		if err := inputs.node.Locate(ctx, o.Progress); err != nil {
			return inputs, err
		}
	}
	if inputs.programs, err = binaries.Locate(ctx, o.components(), o.Progress); err != nil {
		return inputs, err
	}
	inputs.emulatedVersion, err = emulatedVersion(ctx, inputs.programs[APIServer], o.Kubernetes)
	return inputs, err
}
