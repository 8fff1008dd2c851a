package cli

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/ownership"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/plan"
	"github.com/runlevel/runlevel/pkg/precondition"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/rollout"
)

// tolls are what goes with objects.
type tolls map[types.UID]kinds.Tally

// of is what goes with one; nil if nobody has counted.
func (t tolls) of(uid types.UID) *kinds.Tally {
	toll, isKnown := t[uid]
	if !isKnown {
		return nil
	}
	return &toll
}

// sightOf is what a preview has seen, as plans have it.
func sightOf(ctx context.Context, c *cluster.Cluster, release *payload.Payload, outcome *rollout.Outcome) plan.Sight {
	sight := plan.Sight{Mode: string(outcome.Mode), Notes: outcome.Notes}
	counted, notes, err := outcome.Tolls(ctx, c)
	if err != nil {
		notes = append(notes, printable.Line(err.Error()))
	}
	with := tolls(counted)
	sight.Notes = append(sight.Notes, notes...)
	for _, found := range outcome.Findings {
		sight.Gate = append(sight.Gate, plan.Finding{Check: found.Check, Blocks: found.Severity == precondition.Blocks, Message: found.Message, Lifts: found.Lifts})
	}
	for _, change := range outcome.Report.Changes {
		sight.Seen = append(sight.Seen, seenOf(change, with))
	}
	sight.Pending = pendingBeside(outcome, release, with, c.Now())
	for _, one := range outcome.Orphans {
		sight.Orphans = append(sight.Orphans, plan.LeftOver{
			Object: plan.Object(one.ID), Tombstone: one.Tombstone(), Toll: with.of(one.UID),
			Why: "an earlier version of the release has applied it, and this one neither has nor deletes it",
		})
	}
	return sight
}

// seenOf is what a preview has seen of one manifest.
func seenOf(change object.Change, with tolls) plan.Seen {
	seen := plan.Seen{
		Manifest: change.Manifest, Action: planned[change.Action], Why: change.Message, Adopted: change.Adopted,
		Recreated: change.Action == object.Recreated, Toll: with.of(change.UID),
	}
	if change.Err != nil {
		seen.Why = printable.Line(change.Err.Err.Error())
	}
	for _, loss := range change.Lost {
		seen.Losing = append(seen.Losing, loss.Manager)
	}
	look := change.Look
	if look == nil {
		return seen
	}
	seen.Unchecked, seen.Said, seen.Would = look.Unchecked, look.Unchecked != "" || seen.Recreated, look.Would.Object
	if look.Live != nil {
		seen.Live, seen.Owners = look.Live.Object, ownership.OwnersIn(look.Live)
	}
	return seen
}

// planned are the actions of an apply as plans call them.
var planned = map[object.Action]plan.Action{
	object.Created: plan.Created, object.Configured: plan.Changed, object.Recreated: plan.Changed, object.Unchanged: plan.Unchanged,
	object.Kept: plan.Kept, object.Deleted: plan.Deleted, object.Pending: plan.Pending, object.Absent: plan.NotThere,
	object.Reappeared: plan.Left, object.Left: plan.Left, object.Failed: plan.Rejected, object.NotChecked: plan.Unchecked,
}

// pendingBeside are the deletes that earlier releases have asked for, of objects that this
// one says nothing of.
func pendingBeside(outcome *rollout.Outcome, release *payload.Payload, with tolls, now time.Time) []plan.LeftOver {
	isSaid := map[kinds.ID]bool{}
	for _, m := range release.Manifests {
		isSaid[m.ID()] = true
	}
	var pending []plan.LeftOver
	for _, one := range pendingDeletes(outcome.Deletes, now) {
		if isSaid[one.Object] {
			continue
		}
		pending = append(pending, plan.LeftOver{Object: plan.Object(one.Object), Why: "version " + one.Version + " deletes it: " + one.State, Toll: with.of(types.UID(one.UID))})
	}
	return pending
}
