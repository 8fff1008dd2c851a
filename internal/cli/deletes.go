package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// deletesFlags are the flags of runlevel deletes.
type deletesFlags struct {
	cluster clusterFlags
	format  output
	name    string
	watch   bool
}

func newDeletes(streams Streams) *cobra.Command {
	var f deletesFlags
	command := &cobra.Command{
		Use:   "deletes",
		Short: "List pending deletes, and what holds them",
		Long: `List the deletes that any version of a release has requested and that are not done, and the
objects of releases that are terminating, deleted by any client: since when, and what holds
each. While there are any, the gate blocks the next minor update. Deletes that an update
should have requested and has not, because it ended before, are listed and block as well.

The record has the deletes that were requested; their state is read from the objects.`,
		Example: `  runlevel deletes
  runlevel deletes --watch          # until all are done
  runlevel deletes -o json | jq -r '.[].object.name'`,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.run(command.Context(), streams)
		},
	}
	addClusterFlags(command, &f.cluster)
	addOutput(command, &f.format)
	command.Flags().StringVar(&f.name, "name", "", "only those of this release")
	command.Flags().BoolVarP(&f.watch, "watch", "w", false, "print each again when it changes, until all are done")
	_ = command.RegisterFlagCompletionFunc("name", f.cluster.completeReleases)
	return command
}

// A pendingDelete is a delete that is not done.
type pendingDelete struct {
	Release     string                `json:"release,omitempty"`
	Object      kinds.ID              `json:"object"`
	UID         string                `json:"uid,omitempty"`
	Version     string                `json:"version,omitempty"` // that requested it
	RequestedAt time.Time             `json:"requestedAt"`
	Sent        bool                  `json:"sent"` // the request was sent, as far as is known
	State       tombstone.DeleteState `json:"state"`
	Message     string                `json:"message"` // the state as text
	Since       *time.Time            `json:"since,omitempty"`
	Finalizers  []string              `json:"finalizers,omitempty"`
	Remaining   []string              `json:"remaining,omitempty"`
}

// pendingDeletes returns the deletes that are not done.
func pendingDeletes(deletes []precondition.Delete, now time.Time) []pendingDelete {
	var pending []pendingDelete
	for _, item := range deletes {
		if item.Seen.State == tombstone.Absent {
			continue
		}
		shown := pendingDelete{
			Object: item.ID, UID: string(item.UID), Version: item.Version, RequestedAt: item.RequestedAt.Time, Sent: item.WasSent(),
			State: item.Seen.State, Message: item.Describe(now), Finalizers: item.Seen.Finalizers, Remaining: item.Seen.Remains,
		}
		if !item.Seen.Since.IsZero() {
			shown.Since = &item.Seen.Since
		}
		if shown.RequestedAt.IsZero() { // not requested by the release
			shown.RequestedAt = item.Seen.Since
		}
		pending = append(pending, shown)
	}
	return pending
}

func (f *deletesFlags) run(ctx context.Context, streams Streams) error {
	if f.watch && f.format != asText {
		return misuse{errors.New("--watch prints lines: it does not go with -o")}
	}
	c, err := f.cluster.connect(ctx)
	if err != nil {
		return err
	}
	records, broken := f.records(ctx, c)
	if len(records) == 0 && broken != nil {
		return broken
	}
	if len(records) == 0 {
		return f.format.print(streams.Out, []pendingDelete{}, func(out io.Writer) error { return f.printNotApplied(ctx, c, out) })
	}
	if f.watch {
		requested, err := requestedDeletes(ctx, c, records...)
		if err != nil {
			return err
		}
		return errors.Join(follow(ctx, c, requested, streams.Out), broken)
	}
	pending := []pendingDelete{}
	for _, record := range records {
		requested, err := requestedDeletes(ctx, c, record)
		if err != nil {
			return err
		}
		for _, shown := range pendingDeletes(precondition.ObserveDeletes(ctx, c, requested), c.Now()) {
			shown.Release = record.Release
			pending = append(pending, shown)
		}
	}
	return errors.Join(f.format.print(streams.Out, pending, func(out io.Writer) error { return printDeletes(out, pending) }), broken)
}

// requestedDeletes returns the deletes of releases that may not be done: those in their records, and their
// objects that are terminating.
func requestedDeletes(ctx context.Context, c *cluster.Cluster, releases ...*record.Record) ([]record.Tombstone, error) {
	var requested []record.Tombstone
	for _, of := range releases {
		before, err := inventory.TakeRelease(ctx, c, of.Release, of.GroupKinds())
		if err != nil {
			return nil, err
		}
		requested = append(requested, precondition.Pending(of, before)...)
	}
	return requested, nil
}

// records returns the records of a release, or of all releases if none is named. With an error, it also returns
// the records that can be read.
func (f *clusterFlags) records(ctx context.Context, c *cluster.Cluster, release string) ([]*record.Record, error) {
	if release == "" {
		return record.List(ctx, c.Client, f.namespace)
	}
	item, isFound, err := record.NewStore(c.Client, f.namespace, release).Load(ctx)
	if err != nil || !isFound {
		return nil, err
	}
	return []*record.Record{item}, nil
}

// noRecord returns the error for a release that has no record.
func (f *clusterFlags) noRecord(release string) error {
	return fmt.Errorf("namespace %s has no record of a release %q", f.namespace, release)
}

// notAppliedMessage returns the message that a release has no record, or that there are no records.
func (f *clusterFlags) notAppliedMessage(release string) string {
	return fmt.Sprintf("no release%s has a record in namespace %s: use --record-namespace if it is in another one", named(release), f.namespace)
}

// records returns the records of the requested releases.
func (f *deletesFlags) records(ctx context.Context, c *cluster.Cluster) ([]*record.Record, error) {
	records, err := f.cluster.records(ctx, c, f.name)
	if f.name != "" && len(records) == 0 && err == nil {
		err = f.cluster.noRecord(f.name)
	}
	return records, err
}

// printNotApplied prints that there are no records.
func (f *deletesFlags) printNotApplied(ctx context.Context, c *cluster.Cluster, out io.Writer) error {
	return printLines(out, f.cluster.notAppliedLines(ctx, c))
}

func printDeletes(out io.Writer, pending []pendingDelete) error {
	if len(pending) == 0 {
		_, err := fmt.Fprintln(out, "no delete is pending")
		return err
	}
	rows := []string{"RELEASE\tOBJECT\tREQUESTED BY\tSTATE"}
	for _, item := range pending {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s", item.Release, item.Object, item.Version, item.Message))
	}
	return printLines(out, aligned(rows))
}

// follow prints pending deletes whenever one of them changes, until none is left.
func follow(ctx context.Context, c *cluster.Cluster, requested []record.Tombstone, out io.Writer) error {
	if len(requested) == 0 {
		return printDeletes(out, nil)
	}
	var objects []kinds.ID
	for _, item := range requested {
		objects = append(objects, item.ID)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	printed := map[kinds.ID]string{}
	for range tombstone.Watch(ctx, c, objects) {
		requested = slices.DeleteFunc(requested, func(item record.Tombstone) bool {
			pending := precondition.Delete{Tombstone: item, Seen: tombstone.Observe(ctx, c, item.ID, item.UID)}
			if ctx.Err() != nil {
				return false
			}
			if state := pending.Seen.DescribeSince(); state != printed[item.ID] {
				printed[item.ID] = state
				fmt.Fprintf(out, "%s: %s\n", item.ID, pending.Describe(c.Now()))
			}
			return !pending.Seen.IsPending()
		})
		if len(requested) == 0 {
			return nil
		}
	}
	return context.Cause(ctx)
}
