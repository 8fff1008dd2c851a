package releasetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/notify"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// ReasonFailed is the reason in the event of tests that have not passed.
const ReasonFailed = "ReleaseTestFailed"

// A ResultRecorder writes the results of tests into the record of a release, and reports an event.
type ResultRecorder struct {
	Cluster   *cluster.Cluster
	Namespace string         // namespace of the record
	Sender    *notify.Sender // nil sends nothing
	// event of the apply before the tests; the zero value reports only tests that have not passed
	Event notify.Event
}

// Record writes the results of tests into the record of the release, under its lock, and reports the event. If not all
// tests have passed, or an error says why they did not run, the event is a failure. The record is not written if
// another process holds the lock: that process would lose the record.
func (r *ResultRecorder) Record(ctx context.Context, release string, report *Report, notRun error) error {
	ctx = context.WithoutCancel(ctx) // an interruption is a result, too
	store := record.NewStore(r.Cluster.Client, r.Namespace, release)
	_, found, err := store.Load(ctx)
	if err == nil && found && report != nil {
		err = r.write(ctx, store, report)
	}
	event, done := r.Event, ""
	if r.Event.Outcome == "" {
		event.Action = notify.Test
		if report != nil {
			event.Version = report.Version
		}
	} else {
		done = "all objects were applied, and "
	}
	switch {
	case notRun != nil:
		event.Outcome, event.Reason, event.Message = notify.Failed, ReasonFailed, printable.Line(notRun.Error())
	case !report.Done:
		event.Outcome, event.Reason, event.Failures = notify.Failed, ReasonFailed, report.failures()
		event.Message = fmt.Sprintf("%s%d of %s passed", done, report.Passed,
			printable.Count(len(report.Tests), "test"))
		event.Seconds += report.Seconds
	case r.Event.Outcome == "":
		return err
	}
	notifier := notify.Notifier{Cluster: r.Cluster, Namespace: r.Namespace, Release: release}
	notifier.Notify(ctx, r.Sender, store.UID(), event)
	return err
}

// write notes the results in the record, which is read again under the lock.
func (r *ResultRecorder) write(ctx context.Context, store *record.Store, report *Report) error {
	hold, err := lock.New(r.Cluster, r.Namespace, report.Release).Acquire(ctx, lock.Options{})
	if err != nil {
		return err
	}
	known, _, err := store.Load(ctx)
	if err == nil && report.NoteIn(known) {
		err = store.Save(ctx, known)
	}
	return errors.Join(err, hold.Release(nil))
}

// NoteIn notes the results in a record, and returns true, if its newest version is the tested one.
func (r *Report) NoteIn(known *record.Record) bool {
	newest := known.Newest()
	if newest == nil || newest.Version != r.Version || newest.Hash != r.hash {
		return false
	}
	var ids []kinds.ID
	for _, result := range r.Tests {
		if result.hasEnded() {
			ids = append(ids, result.Object)
		}
	}
	newest.NoteTests(ids, r.failures())
	return true
}

// hasEnded reports whether a test was neither left out nor interrupted.
func (r Result) hasEnded() bool { return r.State != NotRun && r.State != Interrupted }

// failures returns the tests that have failed.
func (r *Report) failures() []record.ObjectFailure {
	var failures []record.ObjectFailure
	for _, result := range r.Tests {
		if result.hasEnded() && result.State != Passed {
			failures = append(failures, record.ObjectFailure{
				ID:      result.Object,
				File:    result.File,
				Reason:  string(result.State),
				Message: result.Message,
			})
		}
	}
	return failures
}
