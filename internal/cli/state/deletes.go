package state

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/state"
)

// NewDeletes returns the verb deletes.
func NewDeletes(streams core.Streams) *cobra.Command {
	var f displayFlags
	command := &cobra.Command{
		Use:   "deletes",
		Short: "List pending deletes, and the reasons why they do not finish",
		Long: `List the pending deletes of releases: objects whose delete a version of the release has
requested, and terminating objects that any client has deleted, with the time of the delete
and the reason why the object still exists. Pending deletes block the next minor update.
Deletes that an interrupted update has not requested yet are listed and block it, too.

The record has the requested deletes. Their state is read from the objects.`,
		Example: `  runlevel deletes
  runlevel deletes --watch          # until all are done
  runlevel deletes -o json | jq -r '.[].object.name'`,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.deletes(command.Context(), streams)
		},
	}
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format)
	core.AddReleaseName(command, &f.cluster, &f.name, "list only the deletes of this release")
	command.Flags().BoolVarP(&f.watch, "watch", "w", false,
		"print each delete again when its state changes, until all are done")
	return command
}

func (f *displayFlags) deletes(ctx context.Context, streams core.Streams) error {
	if f.watch && f.format != core.Text {
		return core.Misusef("--watch prints lines: it can't be combined with -o")
	}
	reader, err := connect(ctx, &f.cluster)
	if err != nil {
		return err
	}
	records, unreadable := f.records(ctx, reader)
	if len(records) == 0 && unreadable != nil {
		return unreadable
	}
	if len(records) == 0 {
		return f.format.Print(streams.Out, []state.PendingDelete{}, func(out io.Writer) error {
			return core.PrintLines(out, reader.NotAppliedLines(ctx))
		})
	}
	if f.watch {
		return errors.Join(followDeletes(ctx, reader, records, streams.Out), unreadable)
	}
	pending, err := reader.DeletesOf(ctx, records)
	if err != nil {
		return err
	}
	return errors.Join(f.format.Print(streams.Out, pending, func(out io.Writer) error {
		return printDeletes(out, pending)
	}), unreadable)
}

// follow prints each pending delete again when its state changes, until none is left.
func followDeletes(ctx context.Context, reader *state.Reader, records []*record.Record, out io.Writer) error {
	requested, err := reader.RequestedDeletes(ctx, records...)
	if err != nil {
		return err
	}
	if len(requested) == 0 {
		return printDeletes(out, nil)
	}
	return reader.FollowDeletes(ctx, requested, func(id kinds.ID, state string) {
		fmt.Fprintf(out, "%s: %s\n", id, state)
	})
}

func printDeletes(out io.Writer, pending []state.PendingDelete) error {
	if len(pending) == 0 {
		_, err := fmt.Fprintln(out, "no delete is pending")
		return err
	}
	rows := []string{"RELEASE\tOBJECT\tREQUESTED BY\tSTATE"}
	for _, item := range pending {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s", item.Release, item.Object, item.Version, item.Message))
	}
	return core.PrintLines(out, core.Align(rows))
}
