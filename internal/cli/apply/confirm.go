package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/review/plan/show"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// confirm shows the plan of an apply that deletes or replaces objects, and asks for confirmation. Without a terminal,
// it does not ask, because an apply in a pipeline was reviewed before.
func (f *applyFlags) confirm(ctx context.Context, c *cluster.Cluster, release releaseInput,
	streams core.Streams) error {
	if f.isConfirmed || f.dryRun.IsEnabled() || f.format == core.JSON || !streams.CanAsk() ||
		!slices.ContainsFunc(release.Manifests, mayDelete) {
		return nil
	}
	preview, err := f.PreviewOf(ctx, c, release.Payload, release.ref)
	if err != nil {
		return err
	}
	deleted, replaced := countDestructions(preview.Outcome)
	if deleted+replaced == 0 {
		return nil
	}
	p, err := preview.Plan(ctx, streams.Err)
	if err != nil {
		return err
	}
	core.DropWholeObjects(p)
	if err := (show.Printer{Plan: p, To: release.ref}).Text(streams.Out); err != nil {
		return err
	}
	question := fmt.Sprintf("Apply %s? It deletes %s and replaces %d.", release.Name,
		printable.Count(deleted, "object"), replaced)
	isYes, err := streams.Ask(ctx, printable.Line(question))
	if err == nil && !isYes {
		err = errors.New("nothing is applied")
	}
	return err
}

// mayDelete reports whether the apply of a manifest may delete an object, or replace it.
func mayDelete(m *payload.Manifest) bool { return m.IsTombstone() || m.IsRecreated() }

// countDestructions returns the number of objects that an apply would delete, and of those that it would replace.
func countDestructions(o *session.Outcome) (deleted, replaced int) {
	for _, change := range o.Report.Changes {
		switch change.Action {
		case object.Deleted:
			deleted++
		case object.Recreated:
			replaced++
		}
	}
	return deleted, replaced
}

// checkRollback returns an error if --rollback-on-failure can't be done.
func (f *applyFlags) checkRollback() error {
	switch {
	case !f.rollback:
		return nil
	case f.watch.isEnabled:
		return core.Misusef("--rollback-on-failure: with --watch the apply does not end: remove one of the two flags")
	case f.dryRun.IsEnabled():
		return core.Misusef("--rollback-on-failure: a dry run applies nothing: remove one of the two flags")
	case f.Session.Apply.NoWait:
		return core.Misusef("--rollback-on-failure: --no-wait does not wait for objects: remove one of the two flags")
	default:
		return nil
	}
}

// rollBack rolls a failed update back, and returns the error of the update with the result of the rollback. It does not
// roll back an update that has not started or was interrupted.
func (f *applyFlags) rollBack(ctx context.Context, c *cluster.Cluster, release releaseInput, failed error,
	streams core.Streams) error {
	if !f.isBegun || ctx.Err() != nil || lock.IsTaken(failed) {
		return failed
	}
	known, _, err := record.NewStore(c.Client, f.Cluster.Namespace, release.Name).Load(ctx)
	if err != nil {
		return errors.Join(failed, fmt.Errorf("not rolled back: %w", err))
	}
	newest := known.Newest()
	isUpdate := newest != nil && newest.State == record.Partial && newest.Mode == string(graph.Update) &&
		newest.Hash == release.Hash && newest.Version == release.Version
	if !isUpdate {
		return failed
	}
	fmt.Fprintln(streams.Err,
		printable.Line(fmt.Sprintf("the update to %s has failed: %s: rolling back", newest.Title(), failed)))
	back := rollbackFlags{applyFlags: *f, reason: "the update has failed (--rollback-on-failure)"}
	back.isConfirmed, back.test, back.rollback, back.hooks, back.Release = true, false, false, hookFlags{},
		core.ReleaseFlags{}
	back.Session.Apply.Mode, back.Session.Force = graph.Update, false
	back.KeepForeign()
	back.Release.ReadFrom(&back.Cluster)
	if err := back.run(ctx, release.Name, "", streams); err != nil {
		return errors.Join(failed, fmt.Errorf("the rollback has failed: %w", err))
	}
	return fmt.Errorf("the update to %s has failed, and was rolled back: %w", newest.Title(), failed)
}
