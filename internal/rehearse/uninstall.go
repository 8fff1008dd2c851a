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
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/uninstall"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// checkDeletes reports the deletes that do not complete.
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
		r.findings.add(newObservation(lint.RehearsalPending, "cannot determine whether all deletes end: %s", reason))
	}
	for _, item := range pending {
		observation := newObservation(lint.RehearsalPending, "its delete does not end: %s",
			item.Describe(r.cluster.Now()))
		if item.Seen.State == tombstone.Unknown {
			observation.Message = "cannot determine whether its delete ends: " + item.Seen.Why
		}
		r.findings.addForObject(item.ID, observation)
	}
}

// deletesInterval is the interval at which pending deletes are checked.
const deletesInterval = time.Second / 2

// await calls isDone at intervals until it returns true, or Patience has passed.
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
		r.findings.add(newObservation(lint.RehearsalPending, "it can't be uninstalled: %s", err))
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
		r.findings.addForObject(remaining.Object,
			newObservation(lint.RehearsalPending, "an uninstall does not delete it: %s", remaining.Message))
	}
	if report.Err != nil && len(report.Left) == 0 {
		r.findings.add(newObservation(lint.RehearsalPending, "the uninstall has failed: %s",
			printable.Line(report.Err.Error())))
	}
	for _, retained := range report.Kept {
		if m := r.findings.manifests[retained.Object]; m != nil {
			r.findings.addForManifest(m,
				newObservation(lint.RehearsalNotTried, "an uninstall keeps it: %s", retained.Message))
		}
	}
}
