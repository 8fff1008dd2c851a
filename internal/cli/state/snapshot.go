package state

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
)

const snapshotHelp = `Print the objects of a release on a cluster, and the objects that affect it: definitions,
Namespaces, classes, quotas, budgets, autoscalers and admission policies. "runlevel rehearse --from
FILE" starts with them and rehearses the update of this cluster without using the cluster.

Of Secrets, only the keys are printed. ConfigMaps, environment variables and custom resources are
printed unchanged: read the file before you share it. The first document names the webhooks that
the API server calls for objects of the release: they can't run in a rehearsal.

Exit codes: 0 if everything could be read; 1 if not: standard error names the objects; 2 for misuse.`

// NewSnapshot returns the verb snapshot.
func NewSnapshot(streams core.Streams) *cobra.Command {
	var f core.ClusterFlags
	command := &cobra.Command{
		Use:   "snapshot NAME",
		Short: "Print the objects of a release on a cluster, to rehearse its update",
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
	snapshot, err := core.TakeSnapshot(ctx, f, name)
	if err != nil {
		return err
	}
	if err := snapshot.Write(streams.Out); err != nil {
		return err
	}
	for _, unread := range snapshot.Unread {
		fmt.Fprintln(streams.Err, "not read:", unread)
	}
	return core.FailIf(len(snapshot.Unread) > 0)
}
