package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/graph"
)

// rollbackFlags are the flags of runlevel rollback.
type rollbackFlags struct {
	applyFlags
	deleteNew bool
	reason    string
}

const rollbackHelp = `Roll a release back: apply the files of an earlier version again from the copy on the
cluster. A rollback is an update, with its order, its waits, the gate and the record.
Neither the folder nor the registry of that version is needed.

REVISION is a revision or a version of "runlevel history". Without it, it is the version that
was completed last before the newest one: after a failed update, the one that ran before. If no version
was ever completed, it is the one that was applied before the newest. To continue a
rollback that was killed or has failed, run the command again. If the newest
version is already a rollback, name the revision.

It first shows the plan of the cluster and the findings of the gate, and asks; without a terminal,
--yes is required. An object that the cluster would refuse stops it before anything is written:
an immutable field, or a definition without a version that objects are stored in.

Objects that only the newer version has stay, and the plan has their tombstones. --delete-new deletes them
in their order, except for namespaces, definitions and volumes, whose deletion would lose data.

A rollback can't undo changes outside the files: data that a newer version has written or
migrated, objects that it has deleted with their contents, messages that it has sent. The gate
warns of lifecycle hooks that have run since, and blocks for deleted volume claims, namespaces and
definitions, which come back empty. --force overrides this; the record names the overridden checks.

If an operator or "apply --watch" keeps the release in place, the command refuses, because the
operator would undo the rollback. The error has the command for its ClusterVersion.

Exit codes: 0 when all objects are applied and ready, or with --dry-run=server when nothing stops it; 1 for
a failure, a gate or an object that stops it, or a declined confirmation; 2 for misuse, or a revision that is
unknown or not kept.`

// NewRollback returns the verb rollback.
func NewRollback(streams core.Streams) *cobra.Command {
	var f rollbackFlags
	command := &cobra.Command{
		Use:   "rollback NAME [REVISION]",
		Short: "Apply an earlier version of a release again",
		Long:  rollbackHelp,
		Example: `  # After a failed update
  runlevel rollback shop

  # What would it do?
  runlevel rollback shop 3 --dry-run=server

  # In a pipeline, and for those who read the history later
  runlevel rollback shop 1.3.0 --yes --reason "checkout is slow, see #4711"

  # Delete the objects, too, that only the newer version has
  runlevel rollback shop --delete-new`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: f.complete,
		RunE: func(command *cobra.Command, args []string) error {
			revision := ""
			if len(args) == 2 {
				revision = args[1]
			}
			return f.run(command.Context(), args[0], revision, streams)
		},
	}
	core.AddUpdateFlags(command, &f.IntentFlags)
	f.Release.ReadFrom(&f.Cluster)
	f.Session.Apply.Mode, f.watch.every = graph.Update, defaultRecheck
	f.add(command)
	flags := command.Flags()
	flags.BoolVarP(&f.isConfirmed, "yes", "y", false, "do not ask")
	flags.BoolVar(&f.deleteNew, "delete-new", false, "delete the objects that only the newer version has")
	flags.StringVar(&f.reason, "reason", "", "why, for the history")
	return command
}

func (f *rollbackFlags) run(ctx context.Context, name, revision string, streams core.Streams) error {
	if err := errors.Join(f.check(), f.files.Check(name)); err != nil {
		return err
	}
	if err := lock.CheckRelease(name); err != nil {
		return core.Misuse(err)
	}
	c, err := f.Cluster.Connect(ctx)
	if err != nil {
		return err
	}
	known, err := f.find(ctx, c, name, revision)
	if err == nil {
		err = f.checkAnswer(streams)
	}
	if err == nil && f.Session.Lock.Wait && !f.dryRun.IsEnabled() {
		if err = f.awaitOthers(ctx, c, name, streams); err == nil {
			known, err = f.find(ctx, c, name, revision)
		}
	}
	if err != nil {
		return err
	}
	if known.Applied() == nil {
		core.Warn(streams.Err,
			[]string{fmt.Sprintf("no version of release %s was ever completed: the files of revision %d are applied "+
				"again, which may fail as before", name, f.Session.Rollback.To)})
	}
	release, err := f.load(ctx, name, streams)
	if err != nil {
		return err
	}
	release, err = f.review(ctx, c, release, streams)
	if err != nil || f.dryRun.IsEnabled() && f.format != core.JSON {
		return err
	}
	if !f.isConfirmed && !f.dryRun.IsEnabled() {
		historyEntry, err := known.FindRevision(strconv.Itoa(f.Session.Rollback.To))
		if err != nil {
			return err
		}
		current := record.HistoryEntry{Version: f.Session.Rollback.Version, Revision: f.Session.Rollback.From}
		isYes, err := streams.Ask(ctx,
			printable.Line(fmt.Sprintf("Roll %s back from %s to %s?", name, current.Title(), historyEntry.Title())))
		if err != nil {
			return err
		}
		if !isYes {
			return errors.New("the rollback was cancelled")
		}
	}
	return f.apply(ctx, c, release, streams)
}

// checkAnswer refuses a rollback that can not be confirmed.
func (f *rollbackFlags) checkAnswer(streams core.Streams) error {
	if f.isConfirmed || f.dryRun.IsEnabled() || streams.CanAsk() {
		return nil
	}
	return core.Misusef("--yes is missing: without a terminal, the command cannot ask for confirmation; " +
		"--dry-run=server shows the changes")
}

// find finds the revision to go to, and refuses a release that another process keeps in place.
func (f *rollbackFlags) find(ctx context.Context, c *cluster.Cluster, name, revision string) (*record.Record, error) {
	known, found, err := record.NewStore(c.Client, f.Cluster.Namespace, name).Load(ctx)
	if err != nil {
		return nil, err
	}
	if !found && len(known.History) == 0 {
		return nil, core.Misusef("namespace %s has no record of a release %q: \"runlevel list\" lists all "+
			"releases", f.Cluster.Namespace, name)
	}
	wanted, err := known.FindRollback(revision)
	if err != nil {
		return nil, core.Misuse(err)
	}
	wanted.Reason = f.reason
	f.Session.Rollback = wanted
	return known, refuseKept(ctx, c, f.Cluster.Namespace, known, wanted)
}

// awaitOthers waits until no other process applies the release, so that the plan and the deletes are about the state
// then.
func (f *rollbackFlags) awaitOthers(ctx context.Context, c *cluster.Cluster, name string, streams core.Streams) error {
	l, o := lock.Lock{Client: c.Client, Namespace: f.Cluster.Namespace, Release: name, Now: c.Now}, f.Session.Lock
	o.OnHeld = newReporter(streams, f.format, f.noProgress, c.Now).onHeld
	hold, err := l.Acquire(ctx, o)
	if err != nil {
		return err
	}
	return hold.Release(nil)
}

// load reads the files of the revision to go to.
func (f *rollbackFlags) load(ctx context.Context, name string, streams core.Streams) (releaseInput, error) {
	ref, err := core.AppliedRef(name, f.Session.Rollback.To)
	if err != nil {
		return releaseInput{}, err
	}
	if _, err := os.Lstat(ref); err == nil {
		return releaseInput{}, core.Misusef(
			"%s is also a file or folder here, which hides the revision: run the rollback in another folder", ref,
		)
	}
	read, packed, err := f.Release.LoadPacked(ctx, ref, &f.files, streams.Err)
	return releaseInput{read, packed, ref}, err
}

// complete completes the name of a release, and then its revisions.
func (f *rollbackFlags) complete(command *cobra.Command, args []string,
	toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return f.Cluster.CompleteRevisions(command, args[0])
	}
	return f.Cluster.CompleteRelease(command, slices.Clone(args), toComplete)
}
