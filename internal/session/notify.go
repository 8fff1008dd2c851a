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

// notify reports an event of the apply.
func (r *run) notify(ctx context.Context, event notify.Event) {
	r.notifier.Notify(ctx, r.options.Notify, r.store.UID(), event)
}

// notifyBegun reports that the record has the update.
func (r *run) notifyBegun(ctx context.Context) {
	r.hasBegun = true
	event := r.event(notify.Begun)
	event.IsResumed = r.outcome.IsSame && r.outcome.Mode != graph.Reconcile
	r.notify(ctx, event)
}

// notifyEnd reports how the apply has ended, or that the gate blocks it. An apply that keeps its payload in place has reported that
// it is complete. Its end is no failure if a user or another process has ended it, or if it goes on after an outage.
func (r *run) notifyEnd(ctx context.Context) {
	err := r.outcome.Err
	isStopped := ctx.Err() != nil || isOutage(r.outcome) || lock.IsTaken(err) || err == nil
	switch {
	case !r.hasBegun && isRefused(err):
		r.notify(ctx, r.outcome.blocked())
	case !r.hasBegun, errors.Is(err, ErrSuperseded), r.options.Keep != nil && isStopped:
	default:
		r.notify(ctx, r.ended())
	}
}

// isRefused reports whether the gate has refused an apply.
func isRefused(err error) bool { return reason.Of(err) == precondition.ReasonFailed }

// NotifyBlocked reports a release that the gate refuses, by the outcome of Inspect.
func (s *Session) NotifyBlocked(ctx context.Context, to *notify.Sender, refused *Outcome) {
	s.notifier.Notify(ctx, to, refused.record, refused.blocked())
}

// blocked returns the event of an apply that the gate refuses.
func (o *Outcome) blocked() notify.Event {
	event := o.event(notify.Blocked)
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
	event := notify.Event{Outcome: outcome, Action: notify.Action(o.Mode), Version: o.Version}
	if o.Previous != o.Version {
		event.From = o.Previous
	}
	return event
}

// event returns an event of the apply.
func (r *run) event(outcome notify.EventType) notify.Event {
	event := r.outcome.event(outcome)
	if back := r.options.Rollback; back != nil {
		event.Action, event.From = notify.Rollback, back.Version
	}
	event.By = r.options.Apply.Lock.Holder()
	r.journal.Read(func(known *record.Record) {
		if newest := known.Newest(); newest != nil && newest.Hash == r.payload.Hash && newest.Version == r.payload.Version {
			event.Revision = newest.Revision
		}
	})
	return event
}

// ended returns the event of an apply that is complete, or has failed, as the record has it.
func (r *run) ended() notify.Event {
	event := r.event(notify.Completed)
	event.Seconds = r.outcome.Took.Seconds()
	err, report := r.outcome.Err, r.outcome.Report
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
	if err != nil || r.options.Apply.NoWait {
		last := r.lastEnd()
		event.Reason, event.Message, event.Failures, event.More = last.Reason, last.Message, last.Failures, last.More
	}
	event.Counts = map[object.Action]int{}
	for _, change := range report.Changes {
		if change.Hook == "" {
			event.Counts[change.Action]++
		}
	}
	return event
}
