package rehearse

import (
	"context"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// reapply applies the new release a second time, and reports the objects that change. Objects that could not be applied
// the first time are left out.
func (r *rehearsal) reapply(ctx context.Context, first *appliedStage) {
	if ctx.Err() != nil || first.Report == nil {
		return
	}
	release := *first.release
	release.Manifests = nil
	for _, m := range first.release.Manifests {
		if !first.notApplied[keyOf(m)] {
			release.Manifests = append(release.Manifests, m)
		}
	}
	options := r.options(graph.Reconcile)
	options.Apply.Full, options.Apply.NoWait = true, true
	expected := map[manifestKey][]string{}
	if preview := session.Preview(ctx, r.cluster, &release, options); preview.Report != nil {
		for _, change := range preview.Report.Changes {
			expected[manifestKey{change.Path, change.ID}] = changesOf(change)
		}
	}
	second := r.stage(ctx, lint.InPayload, &release, options)
	if second.Report == nil {
		return
	}
	for _, change := range second.Report.Changes {
		key := manifestKey{change.Path, change.ID}
		m := second.manifests[key]
		if m == nil || change.Err != nil || change.Hook != "" || m.IsTombstone() {
			continue
		}
		switch change.Action {
		case object.Configured, object.Recreated, object.Created:
			fields := ""
			if len(expected[key]) > 0 {
				fields = ": " + strings.Join(expected[key], ", ")
			}
			r.findings.addForManifest(m, newObservation(lint.RehearsalAgain, "a second apply changes it%s", fields))
		}
	}
}

// changesOf names the fields that an apply would change.
func changesOf(change object.Change) (names []string) {
	if change.Look == nil || change.Look.Live == nil {
		return nil
	}
	for _, difference := range fields.Diff(fields.WithoutServers(change.Look.Live.Object),
		fields.WithoutServers(change.Look.Would.Object)) {
		if len(names) == maxFields {
			return append(names, "and more")
		}
		names = append(names, difference.Path.String())
	}
	return names
}
