package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/lock"
	"github.com/runlevel/runlevel/pkg/record"
)

// statusFlags are the flags of runlevel status.
type statusFlags struct {
	cluster clusterFlags
	format  output
	name    string
	watch   bool
}

const statusHelp = `Show on one screen how a release of a cluster stands, whether an operator keeps it or it is
applied by hand: from which version to which, how much of it is done, level by level; who applies
it, since when; what has failed, what it waits for and why; which deletes are pending and who
holds them; what holds back the next minor version; which ClusterOperators are not well.

That is made of the record of the release, of its lock, and of the objects as they are now; on
a cluster that has them, also of ClusterVersion "version" and the ClusterOperators. An apply
begins to tell the record after three seconds, and tells every ten seconds at most.

Without --name it is the only release there is, or the one called "default", which is the
operator's.

--watch shows it again whenever something has changed, until Ctrl-C: on a terminal in place, else
below what was printed before; with -o json a value in a line. It goes on while the API server
does not answer, and says so. Objects of a large release are read ever more rarely.

Exit codes: 0 when the release is complete and nothing is wrong; 1 when it is not: it is being
applied, waits, has failed or was refused, a delete is pending, or something could not be found
out; 2 for misuse. Whichever it is, the answer is on standard output. With --watch it is that of
what was shown last.`

func newStatus(streams Streams) *cobra.Command {
	var f statusFlags
	command := &cobra.Command{
		Use:   "status",
		Short: "Show how far a release of a cluster is, what it waits for, and what is wrong",
		Long:  statusHelp,
		Example: `  runlevel status

  # Follow an update that an operator does, or that is applied in another terminal
  runlevel status --watch

  # In a script: wait until the release is complete and all is well
  until runlevel status --name shop; do sleep 5; done

  # What holds back the next minor version?
  runlevel status -o json | jq -r '.gates[]? | "\(.reason): \(.message)"'

  # How far is it?
  runlevel status --watch -o json | jq '.percent'`,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.run(command.Context(), streams)
		},
	}
	addClusterFlags(command, &f.cluster)
	addOutput(command, &f.format)
	command.Flags().StringVar(&f.name, "name", "", "the release (default: the only one, or \"default\")")
	command.Flags().BoolVarP(&f.watch, "watch", "w", false, "show it again whenever something has changed, until Ctrl-C")
	_ = command.RegisterFlagCompletionFunc("name", f.cluster.completeReleases)
	return command
}

// completeReleases completes the names of the releases that have a record.
func (f *clusterFlags) completeReleases(command *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.completing(command, func(ctx context.Context, c *cluster.Cluster) []cobra.Completion {
		records, _ := record.List(ctx, c.Client, f.namespace)
		return namesOf(records)
	})
}

// namesOf returns the releases of records.
func namesOf(records []*record.Record) []string {
	var names []string
	for _, one := range records {
		names = append(names, one.Release)
	}
	return names
}

func (f *statusFlags) run(ctx context.Context, streams Streams) error {
	if f.name != "" {
		if err := lock.CheckRelease(f.name); err != nil {
			return misuse{fmt.Errorf("--name: %w", err)}
		}
	}
	c, err := f.cluster.connect(ctx)
	if err != nil {
		return err
	}
	asker := &statusAsker{cluster: c, flags: f}
	first, err := asker.ask(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	screen := newStatusScreen(f, streams)
	if f.watch {
		return screen.follow(ctx, asker, first)
	}
	if err := screen.show(first); err != nil {
		return err
	}
	return failIf(!first.Done)
}

// choose returns the record that is asked about, and the names of the other releases; nil if there is none.
func choose(records []*record.Record, name string) (*record.Record, []string, error) {
	names := namesOf(records)
	at := slices.Index(names, name)
	switch {
	case at >= 0:
	case len(records) == 0:
		return nil, nil, nil
	case len(records) == 1:
		at = 0
	default:
		return nil, nil, misuse{errors.New("there are several releases: name one of them with --name: " + strings.Join(names, ", "))}
	}
	return records[at], slices.Delete(names, at, at+1), nil
}
