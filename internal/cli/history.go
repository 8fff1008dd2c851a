package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/record"
)

func newHistory(streams Streams) *cobra.Command {
	var f deletesFlags
	command := &cobra.Command{
		Use:   "history",
		Short: "Print what was applied to a cluster, and when",
		Long: `Print what was applied to a cluster, and when: for each release its versions, newest
first, whether they were completed, and which gates were overridden. While an apply runs,
also what it waits for.`,
		Example: `  runlevel history
  runlevel history --name shop -o json | jq -r '.[0].history[0].version'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.history(command.Context(), streams)
		},
	}
	addClusterFlags(command, &f.cluster)
	addOutput(command, &f.format)
	command.Flags().StringVar(&f.name, "name", "", "only that of this release")
	_ = command.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions)
	return command
}

func (f *deletesFlags) history(ctx context.Context, streams Streams) error {
	c, err := f.cluster.connect(ctx)
	if err != nil {
		return err
	}
	records, broken := f.records(ctx, c)
	if len(records) == 0 && broken != nil {
		return broken
	}
	err = f.format.print(streams.Out, records, func(out io.Writer) error {
		if len(records) == 0 {
			_, err := fmt.Fprintf(out, "no release was applied yet, as far as namespace %s knows\n", f.cluster.namespace)
			return err
		}
		for _, one := range records {
			if err := printHistory(out, one, c.Now()); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, broken)
}

// printHistory prints the record of one release.
func printHistory(out io.Writer, of *record.Record, now time.Time) error {
	fmt.Fprintf(out, "release %s\n", of.Release)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  VERSION\tSTATE\tMODE\tSTARTED\tTOOK\tFORCED\tSOURCE")
	for _, entry := range of.History {
		took := ""
		if entry.Completed != nil {
			took = max(entry.Completed.Sub(entry.Started.Time), 0).String()
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", cmp.Or(entry.Version, "-"), entry.State, entry.Mode,
			entry.Started.UTC().Format(time.RFC3339), took, strings.Join(entry.Forced, ","), printable.Line(entry.Source))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, wait := range of.Waits {
		fmt.Fprintf(out, "  waits for %s: %s, for %s\n", wait.ID, printable.Line(wait.For), age(now, wait.Since.Time))
	}
	return nil
}
