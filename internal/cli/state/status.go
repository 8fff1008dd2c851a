// Package state is the verbs that show how releases stand on a cluster: status, why, history, deletes and
// inspect.
//
// It parses arguments, and prints what packages state and why of internal/session have read and judged. It changes
// nothing.
//
// NewStatus and its siblings are the calls to start from: each returns a verb.
package state

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/session/state"
)

// statusFlags are the flags of runlevel status.
type statusFlags struct {
	cluster core.ClusterFlags
	format  core.Output
	name    string
	watch   bool
}

const statusHelp = `Show the state of a release on one screen, whether an operator keeps it or it is applied by hand:
from which version to which it is updated, and how much of each level is done; which process
applies it, and since when; what has failed, what it waits for and why; pending deletes and what
holds them; what blocks the next minor version; and ClusterOperators that are not healthy.

It is read from the record of the release, its lock and its objects, and from ClusterVersion
"version" and the ClusterOperators, if the cluster has them. An apply writes its progress into the
record after three seconds, and then every ten seconds at most.

Without a name, it is the only release on the cluster, or the one called "default", which is the
operator's.

With --watch, it is shown again whenever something has changed, until Ctrl-C: in place on a
terminal, and else below what was printed before; with -o json, one value per line. If the API
server does not respond, that is shown, and it is retried. The objects of a large release are
read less often.

Exit codes: 0 when the release is complete and nothing is wrong; 1 when it is being applied, waits,
has failed or was refused, when a delete is pending, when the operator that is to keep it in place
does not, or when something could not be read; 2 for misuse. The status is on standard output in
either case. With --watch, the exit code is that of the status that was shown last.`

const statusExamples = `  runlevel status

  # Follow an update that an operator does, or that is applied in another terminal
  runlevel status --watch

  # In a script: wait until the release is complete and all is well
  until runlevel status shop; do sleep 5; done

  # What blocks the next minor version?
  runlevel status -o json | jq -r '.gates[]? | "\(.reason): \(.message)"'

  # How far is it?
  runlevel status --watch -o json | jq '.percent'`

// NewStatus returns the verb status.
func NewStatus(streams core.Streams) *cobra.Command {
	var f statusFlags
	command := &cobra.Command{
		Use:     "status",
		Short:   "Show the state of a release on a cluster: progress, waits and failures",
		Long:    statusHelp,
		Example: statusExamples,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.run(command.Context(), streams)
		},
	}
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format)
	core.AddReleaseName(command, &f.cluster, &f.name, "the release (default: the only one, or \"default\")")
	command.Flags().BoolVarP(&f.watch, "watch", "w", false,
		"show it again whenever something has changed, until Ctrl-C")
	return command
}

func (f *statusFlags) run(ctx context.Context, streams core.Streams) error {
	reader, err := connect(ctx, &f.cluster)
	if err != nil {
		return err
	}
	first, err := reader.Status(ctx, f.name)
	var several *state.SeveralError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &several):
		return core.Misuse(err)
	case err != nil:
		return err
	}
	screen := newStatusScreen(f, streams)
	if f.watch {
		return screen.follow(ctx, reader, first)
	}
	if err := screen.show(first); err != nil {
		return err
	}
	return core.FailIf(!first.Done)
}

// connect connects to the cluster of the flags, and returns a reader of its releases.
func connect(ctx context.Context, f *core.ClusterFlags) (*state.Reader, error) {
	c, err := f.Connect(ctx)
	return &state.Reader{Cluster: c, Namespace: f.Namespace, Applied: f.ReadApplied}, err
}
