package rehearse

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/uninstall"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
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
		if !first.failed[placeOf(m)] {
			release.Manifests = append(release.Manifests, m)
		}
	}
	options := r.options(graph.Reconcile)
	options.Apply.Full, options.Apply.NoWait = true, true
	would := map[place][]string{}
	if preview := session.Preview(ctx, r.cluster, &release, options); preview.Report != nil {
		for _, change := range preview.Report.Changes {
			would[place{change.Path, change.ID}] = changesOf(change)
		}
	}
	second := r.stage(ctx, lint.InPayload, &release, options)
	if second.Report == nil {
		return
	}
	for _, change := range second.Report.Changes {
		at := place{change.Path, change.ID}
		m := second.manifest(at)
		if m == nil || change.Err != nil || change.Hook != "" || m.IsTombstone() {
			continue
		}
		switch change.Action {
		case object.Configured, object.Recreated, object.Created:
			text := "a second apply changes it"
			if len(would[at]) > 0 {
				text += ": " + strings.Join(would[at], ", ")
			}
			r.found.about(m, lint.RehearsalObservation{Rule: lint.RehearsalAgain, Message: text})
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
	_ = wait.PollUntilContextTimeout(ctx, time.Second/2, r.Patience, true, func(ctx context.Context) (bool, error) {
		seen := session.Inspect(ctx, r.cluster, a.release, r.options(graph.Update))
		if unread = seen.Err; unread != nil {
			return false, nil
		}
		pending = nil
		for _, item := range seen.Deletes {
			if item.WasSent() && (item.Seen.State == tombstone.Terminating || item.Seen.State == tombstone.Unknown) {
				pending = append(pending, item)
			}
		}
		return len(pending) == 0, nil
	})
	if unread != nil && len(pending) == 0 && ctx.Err() == nil {
		r.found.add(lint.RehearsalObservation{
			Rule:    lint.RehearsalPending,
			Message: "it is not known whether all deletes end: " + printable.Line(unread.Error()),
		})
	}
	for _, item := range pending {
		seen := lint.RehearsalObservation{
			Rule:    lint.RehearsalPending,
			Object:  item.ID.String(),
			Message: "its delete does not end: " + item.Describe(r.cluster.Now()),
		}
		if item.Seen.State == tombstone.Unknown {
			seen.Message = "it is not known whether its delete ends: " + item.Seen.Why
		}
		for _, m := range a.release.Manifests {
			if m.ID() == item.ID {
				seen.Path, seen.Line = m.Path, m.Line
			}
		}
		r.found.add(seen)
	}
}

// uninstall removes the new release, and reports what is left.
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
	seen, err := uninstall.Look(ctx, r.cluster, options)
	if err != nil {
		r.found.add(lint.RehearsalObservation{
			Rule:    lint.RehearsalPending,
			Message: "it can't be uninstalled: " + err.Error(),
		})
		return
	}
	r.Progress(fmt.Sprintf("uninstall %s: %s", a.release.Version, printable.Count(len(seen.Objects()), "object")))
	report := uninstall.Run(ctx, r.cluster, options, seen)
	r.report.Stages = append(r.report.Stages, RehearsalStage{
		Name:    strings.TrimSpace("uninstall " + a.release.Version),
		Seconds: time.Since(began).Round(time.Millisecond).Seconds(),
		Objects: len(report.Deleted),
	})
	byID := map[string]*payload.Manifest{}
	for _, m := range a.release.Manifests {
		byID[m.ID().String()] = m
	}
	for _, left := range report.Left {
		seen := lint.RehearsalObservation{
			Rule:    lint.RehearsalPending,
			Object:  left.Object.String(),
			Message: "an uninstall does not delete it: " + left.Message,
		}
		if m := byID[seen.Object]; m != nil {
			seen.Path, seen.Line = m.Path, m.Line
		}
		r.found.add(seen)
	}
	if report.Err != nil && len(report.Left) == 0 {
		r.found.add(lint.RehearsalObservation{
			Rule:    lint.RehearsalPending,
			Message: "the uninstall has failed: " + printable.Line(report.Err.Error()),
		})
	}
	for _, kept := range report.Kept {
		if m := byID[kept.Object.String()]; m != nil {
			r.found.about(m, lint.RehearsalObservation{
				Rule:    lint.RehearsalNotTried,
				Message: fmt.Sprintf("an uninstall keeps it: %s", kept.Message),
			})
		}
	}
}
