// Package state defines the verbs that show the state of releases on a cluster, such as status, why and history.
//
// The verbs parse arguments, and print the results of packages state and why of internal/session. They change nothing.
//
// NewStatus and the similar functions return one verb each. Start with NewStatus.
package state

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/ui/pages"
)

// displayFlags are the flags of verbs that show one release or several releases.
type displayFlags struct {
	cluster core.ClusterFlags
	format  core.Output
	name    string
	watch   bool
}

// records returns the records of the release of the flags, or of all releases if none is named.
func (f *displayFlags) records(ctx context.Context, reader *state.Reader) ([]*record.Record, error) {
	records, err := reader.Records(ctx, f.name)
	if f.name != "" && len(records) == 0 && err == nil {
		err = reader.NoRecord(f.name)
	}
	return records, err
}

const statusHelp = `Show the state of a release on one screen, whether an operator or a user applies it: the versions
of an update, and how much of each level is done; the process that applies the release; failures;
objects that are not ready, and the reasons; pending deletes, and what holds them; gates that block
the next minor version; and ClusterOperators that are not healthy.

The state is read from the record of the release, its lock and its objects, and from ClusterVersion
"version" and the ClusterOperators, if the cluster has them. An apply writes its progress into the
record after three seconds, and then every ten seconds at most.

Without a name, the command shows the only release on the cluster, or the operator's release, which
is named "default".

With --watch, the state is shown again when it changes, until Ctrl-C: in place on a terminal,
otherwise below the previous state; with -o json, one value per line. If the API server does not
respond, the command reports the outage and retries. The objects of a large release are read less
often.

Exit codes: 0 if the release is complete and has no problems; 1 if an apply runs, waits, has failed
or was refused, if a delete is pending, if the operator that should keep it in place does not, or
if something could not be read; 2 for misuse. The status is printed to standard output in any case.
With --watch, the exit code is that of the last status.`

const statusExamples = `  runlevel status

  # Follow an update by the operator or by another terminal
  runlevel status --watch

  # In a script: wait until the release is complete and has no problems
  until runlevel status shop; do sleep 5; done

  # What blocks the next minor version?
  runlevel status -o json | jq -r '.gates[]? | "\(.reason): \(.message)"'

  # As a page in one file, for an incident
  runlevel status -o html > status.html

  # How far is it?
  runlevel status --watch -o json | jq '.percent'`

// NewStatus returns the verb status.
func NewStatus(streams core.Streams) *cobra.Command {
	var f displayFlags
	command := &cobra.Command{
		Use:     "status",
		Short:   "Show the state of a release on a cluster: progress, waits and failures",
		Long:    statusHelp,
		Example: statusExamples,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.status(command.Context(), streams)
		},
	}
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format, core.Text, core.JSON, core.YAML, core.HTML)
	core.AddReleaseName(command, &f.cluster, &f.name, "the release (default: the only one, or \"default\")")
	command.Flags().BoolVarP(&f.watch, "watch", "w", false,
		"show the state again when it changes, until Ctrl-C")
	return command
}

func (f *displayFlags) status(ctx context.Context, streams core.Streams) error {
	if f.watch && f.format == core.HTML {
		return core.Misusef("--watch: -o html writes the state once: leave out --watch, or run \"runlevel ui\"")
	}
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
	if f.format == core.HTML {
		if err := pages.Status(reader.Namespace, first).WriteFile(streams.Out); err != nil {
			return err
		}
		return core.FailIf(!first.Done)
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
