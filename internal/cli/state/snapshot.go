package state

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
)

const snapshotHelp = `Print what a cluster has of a release, and what the release finds there: definitions, Namespaces,
classes, quotas, budgets, autoscalers and admission policies. "runlevel rehearse --from FILE" begins with it, so that the
update of this cluster is tried without this cluster.

Values of Secrets are not printed, only their keys. ConfigMaps, environment variables and custom resources
are printed as they are: read the file before you pass it on. The webhooks that are called for
objects of the release are named in the first document: they can't run in a rehearsal.

Exit codes: 0 when all was read; 1 when something could not be, which standard error names; 2 for misuse.`

// NewSnapshot returns the verb snapshot.
func NewSnapshot(streams core.Streams) *cobra.Command {
	var f core.ClusterFlags
	command := &cobra.Command{
		Use:   "snapshot NAME",
		Short: "Print what a cluster has of a release, to rehearse its update",
		Long:  snapshotHelp,
		Example: `  runlevel snapshot shop > shop.snapshot
  runlevel rehearse ./release --from shop.snapshot`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.CompleteRelease,
		RunE: func(command *cobra.Command, args []string) error {
			return printSnapshot(command.Context(), &f, args[0], streams)
		},
	}
	core.AddClusterFlags(command, &f)
	return command
}

func printSnapshot(ctx context.Context, f *core.ClusterFlags, name string, streams core.Streams) error {
	taken, err := core.TakeSnapshot(ctx, f, name)
	if err != nil {
		return err
	}
	if err := taken.Write(streams.Out); err != nil {
		return err
	}
	for _, unread := range taken.Unread {
		fmt.Fprintln(streams.Err, "not read:", unread)
	}
	return core.FailIf(len(taken.Unread) > 0)
}
