package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// NewHistory returns the verb history.
func NewHistory(streams core.Streams) *cobra.Command {
	var f displayFlags
	command := &cobra.Command{
		Use:   "history",
		Short: "Print which versions of a release were applied, and when",
		Long: `Print which versions of a release were applied, and when: the newest first, whether they
were completed, which gates were overridden, and which lifecycle hooks a user has skipped
or run again. For an incomplete version, it also shows when and why its last apply ended, and
the first failures, unless the apply was killed. While an apply runs, it also shows for which
objects the apply waits.

NAME@REVISION is a SOURCE as long as its files are stored: by default, those of the last five
versions.

If the cluster has several releases and none is named, the command prints the same list as
"runlevel list"; -o json has the history of each release.`,
		Example: `  runlevel history shop
  runlevel history shop -o json | jq -r '.[0].history[0].version'

  # Roll back to an earlier version
  runlevel diff shop@3 && runlevel rollback shop 3`,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.history(command.Context(), streams)
		},
	}
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format)
	core.AddReleaseName(command, &f.cluster, &f.name, "the release (default: the only one)")
	return command
}

func (f *displayFlags) history(ctx context.Context, streams core.Streams) error {
	reader, err := connect(ctx, &f.cluster)
	if err != nil {
		return err
	}
	records, unreadable := f.records(ctx, reader)
	if len(records) == 0 && unreadable != nil {
		return unreadable
	}
	err = f.format.Print(streams.Out, records, func(out io.Writer) error {
		if len(records) == 0 {
			return core.PrintLines(out, reader.NotAppliedLines(ctx))
		}
		if len(records) > 1 {
			return printReleaseList(ctx, reader, out)
		}
		if err := printHistory(out, records[0], reader.Cluster.Now()); err != nil {
			return err
		}
		printUnfinished(ctx, reader, records[0], out)
		return nil
	})
	return errors.Join(err, unreadable)
}

// printReleaseList prints the list of releases, and the command that prints the history of one.
func printReleaseList(ctx context.Context, reader *state.Reader, out io.Writer) error {
	releases, err := reader.List(ctx)
	if err != nil {
		return err
	}
	var list listFlags
	return core.PrintLines(out,
		append(core.Align(list.rows(releases, reader.Cluster.Now())),
			"\"runlevel history NAME\" prints the history of one"))
}

// printHistory prints the record of one release.
func printHistory(out io.Writer, release *record.Record, now time.Time) error {
	fmt.Fprintf(out, "release %s\n", printable.Line(release.Release))
	rows := []string{"  REVISION\tVERSION\tSTATE\tMODE\tSTARTED\tTOOK\tFORCED\tSOURCE"}
	for _, entry := range release.History {
		rows = append(rows, historyRow(entry))
	}
	if err := core.PrintLines(out, core.Align(rows)); err != nil {
		return err
	}
	if release.Uninstall != nil {
		fmt.Fprintf(out, "  the release is %s\n", release.Uninstall)
	}
	for i, entry := range release.History {
		if entry.Rollback != nil {
			fmt.Fprintf(out, "  %d: %s\n", entry.Revision, printable.Line(entry.Rollback.String()))
		}
		for _, hookOverride := range entry.Hooks {
			fmt.Fprintf(out, "  %s: the %s at %s\n", printable.Line(cmp.Or(entry.Version, "-")), hookOverride,
				hookOverride.Time.UTC().Format(time.RFC3339))
		}
		if entry.End != nil {
			printEnd(out, entry, i == 0)
		}
	}
	for _, wait := range release.Waits {
		fmt.Fprintf(out, "  waits for %s: %s, for %s\n", wait.OrHook(wait.Hook), printable.Line(wait.For),
			printable.Age(now, wait.Since.Time))
	}
	return nil
}

// historyRow returns the row of an update in the table of a release.
func historyRow(entry record.HistoryEntry) string {
	took := ""
	switch {
	case entry.Completed != nil:
		took = max(entry.Completed.Sub(entry.Started.Time), 0).String()
	case entry.End != nil:
		took = max(entry.End.Time.Sub(entry.Started.Time), 0).String()
	}
	return fmt.Sprintf("  %d\t%s\t%s\t%s\t%s\t%s\t%s\t%s", entry.Revision, printable.Line(cmp.Or(entry.Version, "-")),
		entry.State, printable.Line(entry.Mode),
		entry.Started.UTC().Format(time.RFC3339), took, printable.Line(strings.Join(entry.Forced, ",")),
		printable.Line(entry.Source))
}

// printUnfinished prints which process applies the newest update, or the next step if no process does, unless the
// record has the end of the update.
func printUnfinished(ctx context.Context, reader *state.Reader, release *record.Record, out io.Writer) {
	newest := release.Newest()
	if newest == nil || newest.State != record.Partial || newest.End != nil || release.Uninstall != nil {
		return
	}
	version := printable.Line(cmp.Or(newest.Version, "-"))
	facts := why.GatherKeeper(ctx, reader.Cluster, reader.Lock(release.Release), release)
	switch holder := facts.Held; {
	case !facts.IsHeldKnown:
	case holder != nil && !holder.IsDead(facts.Now):
		fmt.Fprintf(out, "  %s is being applied by %s, for %s\n", version, printable.Line(holder.Name),
			printable.Age(facts.Now, holder.Since))
	default:
		remedy := why.Remedy(release, facts.Run, nil)
		if facts.NotKept != nil && facts.NotKept.Operator != nil {
			remedy = facts.NotKept.String()
		}
		fmt.Fprintf(out, "  %s is not completed: its apply did not record how it ended, so it was killed or has lost "+
			"the lock; %s\n", version, remedy)
	}
}

// printEnd prints the reason why an update was not completed, and, for the newest update, the first failures.
func printEnd(out io.Writer, entry record.HistoryEntry, isNewest bool) {
	cause := printable.Line(entry.End.Message)
	if entry.End.Reason != "" {
		cause = printable.Line(entry.End.Reason) + ": " + cause
	}
	fmt.Fprintf(out, "  %s is not completed: its apply ended at %s: %s\n", printable.Line(cmp.Or(entry.Version, "-")),
		entry.End.Time.UTC().Format(time.RFC3339), cause)
	if !isNewest {
		return
	}
	for _, failure := range entry.End.Failures {
		fmt.Fprintf(out, "    %s (%s): %s\n", failure.OrHook(failure.Hook), printable.Line(failure.File),
			printable.Line(failure.Message))
	}
	if entry.End.More > 0 {
		fmt.Fprintf(out, "    and %d more\n", entry.End.More)
	}
}
