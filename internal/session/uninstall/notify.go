package uninstall

import (
	"context"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/notify"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// mostFailures bounds how many of the remaining objects an event names.
const mostFailures = 5

// notifyBegun reports that the uninstall has begun. The record was written before.
func (r *remover) notifyBegun(ctx context.Context) {
	r.recordID = r.store.UID()
	event := r.event(notify.Begun)
	event.By, event.IsResumed = r.hold.Holder(), r.plan.Begun != nil
	r.notifier.Notify(ctx, r.options.Notify, r.recordID, event)
}

// notifyEnd reports the end of an uninstall that has begun. If all objects were deleted, the record of the event was
// deleted, too.
func (r *remover) notifyEnd(ctx context.Context) {
	if r.recordID == "" {
		return
	}
	event := r.event(notify.Uninstalled)
	event.Seconds, event.Counts = r.report.Seconds, map[object.Action]int{object.Deleted: r.report.Counts.Objects}
	if kept := len(r.report.Kept); kept > 0 {
		event.Counts[object.Kept] = kept
	}
	if r.report.Err != nil {
		event.Outcome, event.Reason, event.Message = notify.Failed, r.report.Reason, r.report.Error
		for _, remaining := range r.report.Left {
			event.Failures = append(event.Failures,
				record.ObjectFailure{ID: remaining.Object, Message: remaining.Message})
		}
		if event.More = max(len(event.Failures)-mostFailures, 0); event.More > 0 {
			event.Failures = event.Failures[:mostFailures]
		}
	}
	r.notifier.Notify(ctx, r.options.Notify, r.recordID, event)
}

// event returns an event of the uninstall.
func (r *remover) event(outcome notify.EventType) notify.Event {
	return notify.Event{Outcome: outcome, Action: notify.Uninstall, Version: r.plan.Version}
}
