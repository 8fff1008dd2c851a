package rehearse

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/cluster/waiter"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/uninstall"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// again applies the new release a second time, and reports what that changes. Objects that could not be applied the
// first time are left out.
func (r *rehearsal) again(ctx context.Context, first *appliedStage) {
	if ctx.Err() != nil || first.Report == nil {
		return
	}
	release := *first.release
	release.Manifests = nil
	for _, m := range first.release.Manifests {
		if !first.failed[keyOf(m)] {
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
			r.found.addForManifest(m, observed(lint.RehearsalAgain, "a second apply changes it%s", fields))
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
		if len(names) == mostFields {
			return append(names, "and more")
		}
		names = append(names, difference.Path.String())
	}
	return names
}

// checkDeletes reports the deletes that do not end.
func (r *rehearsal) checkDeletes(ctx context.Context, a *appliedStage) {
	if ctx.Err() != nil || a.Report == nil {
		return
	}
	var pending []precondition.Delete
	var unread error
	r.await(ctx, deletesInterval, func(ctx context.Context) bool {
		plan := session.Inspect(ctx, r.cluster, a.release, r.options(graph.Update))
		if unread = plan.Err; unread != nil {
			return false
		}
		pending = slices.DeleteFunc(plan.Deletes, func(item precondition.Delete) bool {
			isOpen := item.Seen.State == tombstone.Terminating || item.Seen.State == tombstone.Unknown
			return !isOpen || !item.WasSent()
		})
		return len(pending) == 0
	})
	if unread != nil && len(pending) == 0 && ctx.Err() == nil {
		reason := printable.Line(unread.Error())
		r.found.add(observed(lint.RehearsalPending, "it is not known whether all deletes end: %s", reason))
	}
	for _, item := range pending {
		observation := observed(lint.RehearsalPending, "its delete does not end: %s", item.Describe(r.cluster.Now()))
		if item.Seen.State == tombstone.Unknown {
			observation.Message = "it is not known whether its delete ends: " + item.Seen.Why
		}
		r.found.addForObject(item.ID, observation)
	}
}

// deletesInterval is the time between two looks at the deletes that have not ended.
const deletesInterval = time.Second / 2

// await calls isDone at intervals until it returns true, or until the rehearsal's patience is over.
func (r *rehearsal) await(ctx context.Context, interval time.Duration, isDone func(context.Context) bool) {
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	w := waiter.Waiter{Pause: waiter.Pause{Shortest: interval}}
	_ = w.Until(ctx, func(ctx context.Context) (waiter.Result, error) {
		if isDone(ctx) {
			return waiter.Done, nil
		}
		return waiter.Again, nil
	})
}

// uninstall removes the new release, and reports the objects that still exist.
func (r *rehearsal) uninstall(ctx context.Context, a *appliedStage) {
	if ctx.Err() != nil || a.Report == nil {
		return
	}
	began := time.Now()
	options := uninstall.Options{
		Release:   a.release.Name,
		Namespace: cmp.Or(r.options(graph.Update).Namespace, session.DefaultNamespace),
		Timeout:   6 * r.Patience,
		Lock:      lock.Options{Duration: lockDuration},
	}
	plan, err := uninstall.Look(ctx, r.cluster, options)
	if err != nil {
		r.found.add(observed(lint.RehearsalPending, "it can't be uninstalled: %s", err))
		return
	}
	r.Progress(fmt.Sprintf("uninstall %s: %s", a.release.Version, printable.Count(len(plan.Objects()), "object")))
	report := uninstall.Run(ctx, r.cluster, options, plan)
	r.report.Stages = append(r.report.Stages, Stage{
		Name:    strings.TrimSpace("uninstall " + a.release.Version),
		Seconds: time.Since(began).Round(time.Millisecond).Seconds(),
		Objects: len(report.Deleted),
	})
	for _, remaining := range report.Left {
		r.found.addForObject(remaining.Object,
			observed(lint.RehearsalPending, "an uninstall does not delete it: %s", remaining.Message))
	}
	if report.Err != nil && len(report.Left) == 0 {
		r.found.add(observed(lint.RehearsalPending, "the uninstall has failed: %s", printable.Line(report.Err.Error())))
	}
	for _, kept := range report.Kept {
		if m := r.found.manifests[kept.Object]; m != nil {
			r.found.addForManifest(m, observed(lint.RehearsalNotTried, "an uninstall keeps it: %s", kept.Message))
		}
	}
}
