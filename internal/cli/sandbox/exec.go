package sandbox

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/sandbox"
)

const execHelp = `Start a sandbox, run a command with KUBECONFIG set to it, stop the sandbox, and
exit with the command's code. With real nodes, RUNLEVEL_SANDBOX_REGISTRY is the
address of its registry.`

func newSandboxExec(streams core.Streams) *cobra.Command {
	var flags startFlags
	command := &cobra.Command{
		Use:   "exec -- COMMAND [ARGUMENT...]",
		Short: "Run a command with a sandbox of its own, and exit with its code",
		Long:  execHelp,
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
	command.Flags().SetInterspersed(false) // flags after COMMAND are the command's
	addStartFlags(command, &flags)
	return command
}

// runWith runs a command line with a sandbox, and returns its exit status as an error.
func runWith(ctx context.Context, o sandbox.Options, line []string, streams core.Streams) error {
	command := exec.Command(line[0], line[1:]...)
	command.Stdin, command.Stdout, command.Stderr = streams.In, streams.Out, streams.Err
	err := sandbox.RunWith(ctx, o, command)
	switch state := command.ProcessState; {
	case state == nil || state.Success():
		return err
	case err != nil:
		return errors.Join(exitStatusOf(state), err)
	default:
		return exitStatusOf(state)
	}
}

// exitStatusOf returns the exit status of a command that has ended.
func exitStatusOf(state *os.ProcessState) core.ExitStatus {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return core.ExitStatus(128 + int(status.Signal())) // shells use the same codes
	}
	return core.ExitStatus(state.ExitCode())
}
