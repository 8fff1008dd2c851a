package precondition

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// goesBack reports whether the update is a rollback to the recorded files of a revision.
func (f *Facts) goesBack() bool {
	earlier := f.rolledBackTo()
	return earlier != nil && earlier.Content != "" && earlier.Content == f.Payload.Content
}

// rolledBackTo returns the update that a rollback returns to; nil if the update is not a rollback.
func (f *Facts) rolledBackTo() *record.HistoryEntry {
	if f.Rollback == nil {
		return nil
	}
	index := slices.IndexFunc(f.Record.History, func(e record.HistoryEntry) bool { return e.Revision == f.Rollback.To })
	if index < 0 {
		return nil
	}
	return &f.Record.History[index]
}

// findDeleted returns the manifests of a rollback whose objects newer versions have deleted. Their deletion is
// completed or pending.
func (input Input) findDeleted(ctx context.Context, c *cluster.Cluster, places []place) []*payload.Manifest {
	if input.Rollback == nil || input.Before == nil {
		return nil
	}
	by := deletedSince(input.Record, input.Rollback.To)
	var found []*payload.Manifest
	for _, place := range places {
		id := place.id()
		if place.manifest.IsTombstone() || by[id] == "" {
			continue
		}
		head, exists := input.Before.Find(id)
		if !exists && place.isServed && !input.Before.Covers(id) {
			_, err := c.GetMetadata(ctx, place.resource, id.Namespace, id.Name)
			exists = !apierrors.IsNotFound(err)
		}
		if !exists || head.Terminating {
			found = append(found, place.manifest)
		}
	}
	return found
}

// deletedSince returns the objects of tombstones of the updates after a revision, with the last version that has the
// tombstone.
func deletedSince(r *record.Record, revision int) map[kinds.ID]string {
	by := map[kinds.ID]string{}
	for _, entry := range slices.Backward(r.Since(revision)) {
		for _, id := range entry.Tombstones {
			by[id] = entry.Title()
		}
	}
	return by
}

// judgeLost implements LostData: one blocking finding and one warning, by version.
func judgeLost(f *Facts) []Finding {
	if len(f.Deleted) == 0 {
		return nil
	}
	by := deletedSince(f.Record, f.Rollback.To)
	type cause struct {
		version string
		isData  bool
	}
	var findings []Finding
	for _, alike := range grouped(f.Deleted, func(m *payload.Manifest) cause {
		return cause{by[m.ID()], kinds.HoldsData(m.ID().GroupKind())}
	}) {
		first, count := alike[0].ID(), len(alike)
		subject := fmt.Sprintf("%s, which %s has deleted, %s recreated", name(ids(alike)), printable.Line(by[first]),
			either(count, "is", "are"))
		finding := warns("restoring "+either(count, "it", "them")+" from a backup, if later changes are needed",
			"%s from the release: later changes are lost", subject)
		if kinds.HoldsData(first.GroupKind()) {
			finding = blocks("accepting that with --force, and restoring a backup afterwards",
				"%s empty", subject)
		}
		findings = append(findings, finding.withFile(alike...))
	}
	return findings
}

// judgeHookEffects implements HookEffects: one finding for each Deployment.
func judgeHookEffects(f *Facts) []Finding {
	earlier := f.rolledBackTo()
	if earlier == nil {
		return nil
	}
	newer := f.Record.Since(earlier.Revision)
	if len(newer) == 0 {
		return nil
	}
	since := newer[len(newer)-1].Started
	var findings []Finding
	for _, deployment := range f.Record.Hooks {
		for _, stage := range []deploymenthook.Stage{deploymenthook.Pre, deploymenthook.Mid, deploymenthook.Post} {
			if progress := deployment.Hooks[stage]; progress.Began != nil && !progress.Began.Before(&since) {
				findings = append(findings, warns("undoing what the hook has changed, if that is needed",
					"the %s has run after %s: what it has changed, such as a database, stays",
					deployment.OrHook(string(stage)),
					printable.Line(earlier.Title())).withSince(progress.Began.Time).withObjects(deployment.ID))
			}
		}
	}
	return findings
}

// judgeUninstall implements BeingUninstalled: a part of the release is deleted, and an apply would create it again.
func judgeUninstall(f *Facts) []Finding {
	uninstall := f.Record.Uninstall
	if uninstall == nil {
		return nil
	}
	release := printable.Line(f.Record.Release)
	finding := blocks(`running "runlevel uninstall `+release+`" to its end`, "release %s is %s", release, uninstall)
	return []Finding{finding.withSince(uninstall.Since.Time)}
}
