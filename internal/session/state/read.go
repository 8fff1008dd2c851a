package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/waiter"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// Status returns the status of a release; without a name, of the only one, or of that of the operator. What can't be
// read is listed as unknown in it. If there are several releases without that one, it returns a SeveralError.
func (r *Reader) Status(ctx context.Context, name string) (*Status, error) {
	s := &Status{Messages: []why.Message{}}
	records, unread := r.KnownRecords(ctx, name)
	if unread != "" {
		s.Unknown = append(s.Unknown, unread)
	}
	wanted := cmp.Or(name, payload.DefaultName)
	known, others, err := choose(records, wanted)
	if err != nil {
		return nil, err
	}
	s.Release, s.Others = wanted, others
	switch {
	case known != nil:
		s.Release = known.Release
		r.addRecord(ctx, s, known)
	case unread == "":
		r.addLost(ctx, s, name)
		r.addKeeper(ctx, s)
	default:
		s.isUnread = true
		held, err := r.Lock(s.Release).Holder(ctx)
		s.notKnown("the holder of the lock", err)
		s.setLock(held, r.Cluster.Now())
	}
	r.addClusterVersion(ctx, s)
	r.addOperators(ctx, s)
	s.Time = r.Cluster.Now().UTC().Truncate(time.Second)
	if s.NotKept != nil && known == nil {
		s.Done = false
		s.Messages = append(s.Messages, s.NotKept.Sentence())
	}
	if known == nil && s.ClusterVersion == nil && s.Lost == nil && unread == "" {
		s.addMessage("%s", r.NotAppliedMessage(name))
		if s.Lock != nil && !s.Lock.Expired {
			s.addMessage("%s is about to apply it, and has held the lock for %s", s.Lock.Holder,
				printable.Age(s.Time, s.Lock.Since))
		}
	}
	s.Gates = append(s.Gates, s.gates()...)
	s.Done = s.Done && len(s.Unknown) == 0 && s.isHealthy()
	return s, ctx.Err()
}

// CurrentStatus is like Status, and returns an error of waiter.Outage if the cluster does not respond.
func (r *Reader) CurrentStatus(ctx context.Context, name string) (*Status, error) {
	if err := waiter.Reach(ctx, r.Cluster); err != nil {
		return nil, err
	}
	status, err := r.Status(ctx, name)
	if err == nil && len(status.Unknown) > 0 { // an outage is a possible cause
		err = waiter.Reach(ctx, r.Cluster)
	}
	return status, err
}

func (s *Status) addMessage(format string, args ...any) {
	s.Messages = append(s.Messages, why.Message{Text: fmt.Sprintf(format, args...)})
}

// notKnown adds an error to the unknown facts, unless the kind is not served.
func (s *Status) notKnown(what string, err error) {
	if err == nil || errors.Is(err, cluster.ErrNotServed) {
		return
	}
	if text := printable.Line(what + ": " + err.Error()); !slices.Contains(s.Unknown, text) {
		s.Unknown = append(s.Unknown, text)
	}
}

// addRecord adds the contents of the record, and the state of the objects of the release.
func (r *Reader) addRecord(ctx context.Context, s *Status, known *record.Record) {
	facts := r.gather(ctx, known)
	answer := facts.Explain(ctx, r.Cluster, r.Namespace)
	s.known, s.answer, s.live = known, answer, facts.Live
	s.Done, s.Messages, s.Objects, s.Missing, s.Unknown = answer.Done, answer.Messages, answer.Objects, answer.Missing,
		append(s.Unknown, answer.Unknown...)
	s.setLock(facts.Held, facts.Now)
	s.NotKept, s.MissingObjects = answer.NotKept, answer.MissingObjects
	s.addHistory(known)
	s.Uninstall, s.Repairs, s.Hooks = known.Uninstall, known.Repairs, why.HookStatuses(known)
	if facts.Run != nil {
		s.addRun(facts)
	}
	if s.State == record.Partial || facts.Run != nil {
		s.LastSeconds = known.Durations[s.Mode].All
	}
	s.notKnown("which deletes are pending", facts.UnlistedErr)
	s.Deletes = r.PendingDeletes(ctx, facts.Requested)
}

// addKeeper adds the holder of the lock of a release without a record, and why the operator does not keep it in place.
func (r *Reader) addKeeper(ctx context.Context, s *Status) {
	facts := why.GatherKeeper(ctx, r.Cluster, r.Lock(s.Release), nil)
	s.NotKept, s.Unknown = facts.NotKept, append(s.Unknown, facts.Unknown...)
	s.setLock(facts.Held, facts.Now)
}

// setLock sets the holder of the lock; nil is none.
func (s *Status) setLock(held *lock.Holder, now time.Time) {
	if held != nil {
		s.Lock = &LockStatus{Holder: held.Name, Since: held.Since, Watching: held.Keeps(), Expired: held.IsDead(now)}
	}
}

// addHistory adds the version, and the version that was completed before.
func (s *Status) addHistory(known *record.Record) {
	newest := known.Newest()
	if newest == nil {
		return
	}
	s.History, s.State, s.Version, s.Mode = newest, newest.State, newest.Version, newest.Mode
	for _, failed := range newest.FailedTests {
		s.addMessage("test %s: %s: %s; see \"runlevel test %s\"", failed.ID, failed.Reason, failed.Message,
			known.Release)
	}
	for _, earlier := range known.History[1:] {
		if earlier.State == record.Completed {
			s.Previous = earlier.Version
			break
		}
	}
	if s.State == record.Completed && known.Run == nil && known.Uninstall == nil {
		s.Percent = new(100)
	}
}

// addRun adds the progress of an apply that has not completed.
func (s *Status) addRun(facts *why.ReleaseFacts) {
	p := progress.Of(progress.Intent{}, facts.Run)
	s.Mode, s.Progress = string(facts.Run.Mode), &p
	if facts.Record.Run.Total > 0 { // older programs do not record it
		s.Percent = new(p.Done * 100 / p.Total)
	}
	p.Title = s.Title()
	if newest := facts.Record.Newest(); newest != nil {
		p.Began = newest.Started.Time
	}
}

// gates returns the gates that block the next minor version, as far as they are known without its payload. If the
// ClusterVersion has such gates, they are complete.
func (s *Status) gates() []Gate {
	if slices.ContainsFunc(s.Gates, func(g Gate) bool { return !g.Requested }) {
		return nil
	}
	var gates []Gate
	for _, pendingDelete := range s.pending() {
		text := "the delete of " + pendingDelete.Object.String() + " is pending: " + pendingDelete.Message
		since := pendingDelete.RequestedAt
		if pendingDelete.Since != nil {
			since = *pendingDelete.Since
		}
		gates = append(gates, Gate{Reason: precondition.PendingDelete, Message: text, Since: &since})
	}
	return gates
}

// A SeveralError is returned for a cluster with several releases, none of which was named.
type SeveralError struct{ Releases []string }

// Error names the releases.
func (e *SeveralError) Error() string {
	return "several releases found: name one of them: " + strings.Join(e.Releases, ", ")
}

// choose returns the record of the release, nil if there is none, and the names of the other releases.
func choose(records []*record.Record, name string) (*record.Record, []string, error) {
	var names []string
	for _, item := range records {
		names = append(names, item.Release)
	}
	index := slices.Index(names, name)
	switch {
	case index >= 0:
	case len(records) == 0:
		return nil, nil, nil
	case len(records) == 1:
		index = 0
	default:
		return nil, nil, &SeveralError{names}
	}
	return records[index], slices.Delete(names, index, index+1), nil
}
