package session

import (
	"context"
	"errors"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/notify"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// reasonInterrupted is the reason of an apply that a user has ended.
const reasonInterrupted = "Interrupted"

// A runNotifier reports what happens in a run.
type runNotifier struct {
	*notify.Notifier
	run      *run
	hasBegun bool // the begin was reported
}

// report reports an event.
func (n *runNotifier) report(ctx context.Context, event notify.Event) {
	n.Notify(ctx, n.run.options.Notify, n.run.store.UID(), event)
}

// begin reports that the record has the update.
func (n *runNotifier) begin(ctx context.Context) {
	n.hasBegun = true
	event := n.event(notify.Begun)
	event.IsResumed = n.run.outcome.IsSame && n.run.outcome.Mode != graph.Reconcile
	n.report(ctx, event)
}

// end reports how the apply has ended, or that the gate blocks it. An apply that keeps its payload in place has
// reported its completion. Its end is not a failure if a user or another process has ended it, or if it continues after
// an outage.
func (n *runNotifier) end(ctx context.Context) {
	outcome := n.run.outcome
	isStopped := ctx.Err() != nil || isOutage(outcome) || lock.IsTaken(outcome.Err) || outcome.Err == nil
	switch {
	case !n.hasBegun && isRefused(outcome.Err):
		n.report(ctx, outcome.blocked(n.event(notify.Blocked)))
	case !n.hasBegun, errors.Is(outcome.Err, ErrSuperseded), n.run.options.Keep != nil && isStopped:
	case n.run.options.HasTests && outcome.Err == nil:
		outcome.Completed = n.ended()
	default:
		n.report(ctx, n.ended())
	}
}

// isRefused reports whether the gate has refused an apply.
func isRefused(err error) bool { return reason.Of(err) == precondition.ReasonFailed }

// NotifyBlocked reports a release that the gate refuses, by the outcome of Inspect. A retry is only reported if other
// checks block it.
func (s *Session) NotifyBlocked(ctx context.Context, sender *notify.Sender, refused *Outcome, isRetry bool) {
	if !isRetry {
		s.notifier.ForgetBlocked()
	}
	s.notifier.Notify(ctx, sender, refused.record, refused.blocked(refused.event(notify.Blocked)))
}

// blocked adds to an event why the gate refuses the apply.
func (o *Outcome) blocked(event notify.Event) notify.Event {
	event.Reason = reason.Of(o.Err)
	blocking := precondition.Blocking(o.Findings)
	event.Checks = precondition.CheckNames(blocking)
	if len(blocking) > 0 {
		event.Message = shortened(blocking[0].Message)
	}
	return event
}

// event returns an event on the release.
func (o *Outcome) event(outcome notify.EventType) notify.Event {
	event := notify.Event{Outcome: outcome, Action: notify.ReleaseAction(o.Mode), Version: o.Version}
	if o.Previous != o.Version {
		event.From = o.Previous
	}
	return event
}

// event returns an event of the apply.
func (n *runNotifier) event(outcome notify.EventType) notify.Event {
	event := n.run.outcome.event(outcome)
	if back := n.run.options.Rollback; back != nil {
		event.Action, event.From = notify.Rollback, back.Version
	}
	event.By = n.run.options.Apply.Lock.Holder()
	n.run.journal.Read(func(known *record.Record) {
		if newest := known.Newest(); newest != nil && newest.Hash == n.run.payload.Hash &&
			newest.Version == n.run.payload.Version {
			event.Revision = newest.Revision
		}
	})
	return event
}

// ended returns the event of a complete or failed apply, as recorded.
func (n *runNotifier) ended() notify.Event {
	event := n.event(notify.Completed)
	event.Seconds = n.run.outcome.Took.Seconds()
	err, report := n.run.outcome.Err, n.run.outcome.Report
	switch {
	case err != nil:
		event.Outcome = notify.Failed
	case event.Action == notify.Rollback:
		event.Outcome = notify.RolledBack
	}
	if report == nil {
		event.Reason, event.Message = reason.Of(err), shortened(err.Error())
		return event
	}
	if err != nil || n.run.options.Apply.NoWait {
		last := n.run.lastEnd()
		event.Reason, event.Message, event.Failures, event.More = last.Reason, last.Message, last.Failures, last.More
	}
	if errors.Is(err, context.Canceled) {
		event.Reason = reasonInterrupted
	}
	event.Counts = map[object.Action]int{}
	for _, change := range report.Changes {
		if change.Hook == "" {
			event.Counts[change.Action]++
		}
	}
	return event
}
