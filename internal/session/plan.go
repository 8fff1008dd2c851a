package session

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/dependents"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Plan returns the plan of a preview: what an apply of the release would do on the cluster.
func (o *Outcome) Plan(ctx context.Context, c *cluster.Cluster, release *payload.Payload) *plan.Plan {
	preview := plan.ClusterPreview{Mode: string(o.Mode)}
	counted, notes, err := o.countDependents(ctx, c)
	if err != nil {
		notes = append(notes, printable.Line(err.Error()))
	}
	preview.Notes = slices.Concat(o.Notes, notes)
	for _, found := range o.Findings {
		preview.Gate = append(preview.Gate, plan.GateFinding{
			Check:      found.Check,
			Severity:   string(found.Severity),
			Message:    found.Message,
			Resolution: found.Resolution,
		})
	}
	manifests := map[object.StepID]*payload.Manifest{}
	for _, m := range release.Manifests {
		manifests[object.StepOf(m)] = m
	}
	due, refused := o.dueHooks()
	preview.Notes = append(preview.Notes, refused...)
	for _, change := range o.Report.Changes {
		if change.Hook != "" {
			continue
		}
		objectPreview := previewOf(change)
		objectPreview.Manifest, objectPreview.AlsoDeletes, objectPreview.DueHooks = manifests[change.StepID],
			counted[change.UID], due[change.StepID]
		preview.Objects = append(preview.Objects, objectPreview)
	}
	preview.Pending = o.pendingOfOthers(release, counted, c.Now())
	for _, orphan := range o.Orphans {
		preview.Orphans = append(preview.Orphans, plan.LeftoverObject{
			ID: orphan.ID, Tombstone: orphan.Tombstone(), AlsoDeletes: counted[orphan.UID],
			Why: "an earlier version of the release has applied it, and this one neither has nor deletes it",
		})
	}
	return plan.ForCluster(plan.ReleaseID{Name: o.Release, Version: o.Previous}, release, preview)
}

// dueHooks returns the lifecycle hooks that an apply runs, by the steps of their Deployments, and a message for each
// hook whose pod the cluster would refuse.
func (o *Outcome) dueHooks() (due map[object.StepID][]deploymenthook.Stage, refused []string) {
	due = map[object.StepID][]deploymenthook.Stage{}
	for _, change := range o.Report.Changes {
		if change.Hook == "" || change.Action == object.NotNeeded || change.Action == object.NotDone {
			continue
		}
		step := change.StepID
		step.Hook = ""
		due[step] = append(due[step], deploymenthook.Stage(change.Hook))
		if change.Err != nil {
			refused = append(refused,
				change.ID.OrHook(change.Hook)+" can't run: "+printable.Line(change.Err.Err.Error()))
		}
	}
	return due, refused
}

// previewOf returns the result of a preview for one manifest.
func previewOf(change object.Change) plan.ObjectPreview {
	found := plan.ObjectPreview{
		Action: planned[change.Action], Why: change.Message, Adopted: change.Adopted, Foreign: change.Foreign,
		Recreated: change.Action == object.Recreated,
	}
	if change.Err != nil {
		found.Why = printable.Line(change.Err.Err.Error())
	}
	for _, loss := range change.Lost {
		found.Losing = append(found.Losing, loss.Manager)
	}
	look := change.Look
	if look == nil {
		return found
	}
	found.Unchecked, found.FromManifest, found.Planned = look.Unchecked, look.Unchecked != "" ||
		found.Recreated, look.Would.Object
	if look.Live != nil {
		found.Live, found.Owners = look.Live.Object, ownership.OwnersIn(look.Live)
	}
	return found
}

// planned maps the actions of an apply to those of plans.
var planned = map[object.Action]plan.Action{
	object.Created: plan.Created, object.Configured: plan.Changed, object.Recreated: plan.Changed,
	object.Unchanged: plan.Unchanged,
	object.Kept:      plan.Kept, object.Deleted: plan.Deleted, object.Pending: plan.Pending,
	object.Absent:     plan.NotThere,
	object.Reappeared: plan.Left, object.Left: plan.Left, object.Failed: plan.Rejected,
	object.NotChecked: plan.Unchecked,
}

// pendingOfOthers returns the pending deletes of earlier releases, of objects that this one does not name.
func (o *Outcome) pendingOfOthers(release *payload.Payload, counted map[types.UID]*kinds.ObjectCounts,
	now time.Time) []plan.LeftoverObject {
	isNamed := map[kinds.ID]bool{}
	for _, m := range release.Manifests {
		isNamed[m.ID()] = true
	}
	var pending []plan.LeftoverObject
	for _, item := range o.Deletes {
		if item.Seen.State == tombstone.Absent || isNamed[item.ID] {
			continue
		}
		pending = append(pending, plan.LeftoverObject{
			ID: item.ID, Why: "version " + item.Version + " deletes it: " + item.Describe(now),
			AlsoDeletes: counted[item.UID],
		})
	}
	return pending
}

// countDependents counts what goes with each object that a preview would delete, with each whose delete is pending, and
// with each orphan if it were deleted; as if only that one was deleted. The notes name what could not be counted.
func (o *Outcome) countDependents(ctx context.Context,
	c *cluster.Cluster) (map[types.UID]*kinds.ObjectCounts, []string, error) {
	var deleted []objectmeta.LiveMetadata
	for uid, id := range o.deletedObjects() {
		resource, err := c.FindKind(ctx, id.GroupKind())
		if err != nil {
			return nil, nil, fmt.Errorf("count the objects that are deleted with %s: %w", id, err)
		}
		deleted = append(deleted, objectmeta.LiveMetadata{ID: resource.Scoped(id), Resource: resource, UID: uid})
	}
	for _, orphan := range o.Orphans {
		deleted = append(deleted, orphan.LiveMetadata)
	}
	counts, notes, err := dependents.Count(ctx, c, deleted)
	counted := map[types.UID]*kinds.ObjectCounts{}
	for uid, count := range counts {
		counted[uid] = &count
	}
	return counted, notes, err
}

// deletedObjects returns the objects that a preview would delete, and those whose delete is pending.
func (o *Outcome) deletedObjects() map[types.UID]kinds.ID {
	all := map[types.UID]kinds.ID{}
	if o.Report != nil {
		for _, change := range o.Report.Changes {
			if change.Action == object.Deleted || change.Action == object.Recreated || change.Action == object.Pending {
				all[change.UID] = change.ID
			}
		}
	}
	for _, item := range o.Deletes {
		if item.Seen.State == tombstone.Terminating {
			all[item.Seen.UID] = item.ID
		}
	}
	return all
}
