package sandbox

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/sandbox"
)

func newSandboxExec(streams core.Streams) *cobra.Command {
	var flags startFlags
	command := &cobra.Command{
		Use:   "exec -- COMMAND [ARGUMENT...]",
		Short: "Run a command with a sandbox of its own, and exit with its code",
		Long: `Start a sandbox, run a command with KUBECONFIG set to it, stop the sandbox, and
exit with the command's code. With real nodes, RUNLEVEL_SANDBOX_REGISTRY is the
address of its registry.`,
		Example: `  runlevel sandbox exec -- kubectl get nodes
  runlevel sandbox exec --nodes 3 -- go test ./...`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			o, err := flags.options(streams.Err)
			if err != nil {
				return err
			}
			program, err := exec.LookPath(args[0])
			if err != nil {
				return core.Misusef("run %s: %w", args[0], err)
			}
			return runWith(command.Context(), o, append([]string{program}, args[1:]...), streams)
		},
	}
	command.Flags().SetInterspersed(false) // what follows COMMAND is the command's
	addStartFlags(command, &flags)
	return command
}

// runWith runs a command line with a sandbox, which is stopped afterwards.
func runWith(ctx context.Context, o sandbox.Options, line []string, streams core.Streams) (err error) {
	s, err := sandbox.Start(ctx, o)
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
	command := exec.Command(line[0], line[1:]...)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "RUNLEVEL_SANDBOX_REGISTRY="+s.Registry)
	command.Stdin, command.Stdout, command.Stderr = streams.In, streams.Out, streams.Err
	command.SysProcAttr = sandbox.DieWithParent()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	defer signal.Stop(signals)
	if ctx.Err() != nil {
		return context.Cause(ctx) // interrupted meanwhile
	}
	if err := command.Start(); err != nil {
		return err
	}
	err = statusOf(await(command, signals))
	select {
	case death := <-s.Died(): // perhaps the cause
		return errors.Join(err, death)
	default:
		return err
	}
}

// await waits for the end of a command, and forwards signals to it. The terminal
// sends Ctrl-C to the command itself, which need not end then: an interactive shell
// does not.
func await(command *exec.Cmd, signals <-chan os.Signal) error {
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

// statusOf returns the exit status of a command.
func statusOf(err error) error {
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return err
	}
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return core.ExitStatus(128 + int(status.Signal())) // as in shells
	}
	return core.ExitStatus(ended.ExitCode())
}
