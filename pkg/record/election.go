package record

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/pkg/printable"
)

// An election is how client-go's leader election is used for a lock. The difference is in
// how they end: leaders exit when they are none any more, and whoever runs under a lock is
// to know why, and ends first. So the Lease is not given to client-go as it is: election
// looks at all that is read of it and written to it.
type election struct {
	*resourcelock.LeaseLock
	store *Store
	lock  Lock

	elected chan struct{}
	// ended is what the election runs under. Its cause says why it has ended.
	ended context.Context
	end   context.CancelCauseFunc
	gone  chan struct{} // closed when nothing of it runs any more

	fence fence

	// What follows belongs to the goroutine of the election, until that is gone.
	seen     *resourcelock.LeaderElectionRecord // the first that somebody else held
	holds    bool                               // we have the lock
	sent     bool                               // we may have it: an update was sent
	answered bool                               // the server knows us and has answered
	since    time.Time                          // when we got it, by the server's clock
	term     int                                // how often the Lease had changed hands by then
	renewed  time.Time                          // the last time, by the same
	trouble  error                              // the last
	written  *resourcelock.LeaderElectionRecord // what the Lease says, if the last we know is that we wrote it
}

// elect begins to run for the lock.
func (s *Store) elect(ctx context.Context, l Lock) (*election, error) {
	e := &election{
		LeaseLock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: s.namespace, Name: s.name()},
			Client:     s.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.Holder},
			Labels:     map[string]string{Label: s.release},
		},
		store: s, lock: l,
		elected: make(chan struct{}), gone: make(chan struct{}),
		fence: fence{renewed: make(chan struct{})},
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e, LeaseDuration: l.Duration, RenewDeadline: l.deadline(), RetryPeriod: l.retry(),
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(e.elected) },
			OnStoppedLeading: func() {},
		},
		// Not ReleaseOnCancel, which releases a Lease while what ran under it may not have
		// ended, and one that somebody else has taken in the meantime.
	})
	if err != nil {
		return nil, fmt.Errorf("lock release %q: %w", s.release, err)
	}
	// It outlives ctx, because what runs under the lock may. What it logs is not for users.
	ctx = klog.NewContext(context.WithoutCancel(ctx), klog.New(nil))
	e.ended, e.end = context.WithCancelCause(ctx)
	go func() {
		defer close(e.gone)
		elector.Run(e.ended)
		e.end(e.notRenewed())
	}()
	return e, nil
}

// leave ends the election and frees the lock, if it is ours. If that fails, the lock is
// free after its duration: nothing that is worth an error.
func (e *election) leave() {
	e.end(nil)
	<-e.gone
	if !e.sent {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ended), e.lock.deadline())
	defer cancel()
	_ = retry.RetryOnConflict(retry.DefaultRetry, func() error { return e.free(ctx) })
}

// free empties the Lease, if it is ours. Nobody is asked for what we wrote last: a Lease that
// is not that any more is not updated.
func (e *election) free(ctx context.Context) error {
	record := e.written
	e.written = nil
	if record == nil {
		var err error
		if record, _, err = e.LeaseLock.Get(ctx); err != nil || record.HolderIdentity != e.lock.Holder || e.holds && e.takenBy(record) != "" {
			return err
		}
	}
	record.HolderIdentity = ""
	record.RenewTime = metav1.NewTime(e.store.now())
	return e.LeaseLock.Update(ctx, *record)
}

// notRenewed returns the error of an election whose time to renew is over. After a conflict, as when the
// process was stopped between reading the Lease and writing it, the Lease is read once more, for who has it.
func (e *election) notRenewed() error {
	if e.holds && apierrors.IsConflict(e.trouble) {
		ctx, cancel := context.WithTimeout(e.ended, e.lock.retry())
		defer cancel()
		if record, _, err := e.LeaseLock.Get(ctx); err == nil && e.takenBy(record) != "" {
			return taken{e.lost(e.takenBy(record), nil)}
		}
	}
	return e.lost(fmt.Sprintf("it could not be renewed for %s", e.lock.deadline()), e.trouble)
}

// lost is the error of a lock that we have no more.
func (e *election) lost(how string, err error) error {
	if err != nil {
		how += ": " + shown(err).Error()
	}
	return fmt.Errorf("release %q: %w: %s", e.store.release, ErrLost, how)
}

// Get reads the Lease, and ends the election if the Lease is not the one that was won.
func (e *election) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	e.written = nil
	record, raw, err := e.LeaseLock.Get(ctx)
	if err != nil {
		if !apierrors.IsNotFound(err) {
			return nil, nil, e.note(ctx, "get", err)
		}
		e.answered = true
		if e.holds { // client-go would create it again, and with it win what another holder may have had meanwhile
			return nil, nil, e.lose(e.lost("its Lease was deleted", nil))
		}
		return nil, nil, e.note(ctx, "get", err)
	}
	e.answered = true
	if e.holds {
		if how := e.takenBy(record); how != "" { // client-go would win a Lease again that is free by now
			return nil, nil, e.lose(taken{e.lost(how, nil)})
		}
		return record, raw, nil
	}
	e.look(record)
	return record, raw, nil
}

// lose ends the election, and returns why.
func (e *election) lose(err error) error {
	e.end(err)
	return err
}

// takenBy says how a Lease differs from the one that was won: another holder has it, or had it in
// the meantime. It is "" for the same Lease.
func (e *election) takenBy(record *resourcelock.LeaderElectionRecord) string {
	switch {
	case record.HolderIdentity == "":
		return "another applier has taken it in the meantime, and freed it"
	case record.HolderIdentity != e.lock.Holder:
		return printable.Line(record.HolderIdentity) + " has taken it"
	case !record.AcquireTime.Time.Equal(e.since) || record.LeaderTransitions != e.term:
		return "another applier of the same name has taken it"
	default:
		return ""
	}
}

// look decides before the lock is ours what it means that another applier holds the Lease.
func (e *election) look(record *resourcelock.LeaderElectionRecord) {
	if record.HolderIdentity == "" || record.HolderIdentity == e.lock.Holder {
		return
	}
	held := heldBy(record)
	switch {
	case e.seen == nil:
		e.seen = record
		e.lock.Say(held)
	case !e.lock.Wait && *record != *e.seen: // the holder is alive
		e.end(&HeldError{Release: e.store.release, Held: held, Age: e.store.now().Sub(held.Since)})
	}
}

// Create makes the Lease, ours from the start.
func (e *election) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	record, began := e.stamped(record), sinceBoot()
	err := e.store.inNamespace(ctx, func() error { return e.LeaseLock.Create(ctx, record) })
	return e.wrote(ctx, "create", record, began, err)
}

// Update takes the Lease or renews it.
func (e *election) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	record, began := e.stamped(record), sinceBoot()
	return e.wrote(ctx, "update", record, began, e.LeaseLock.Update(ctx, record))
}

// stamped is what is written: with the times of the server's clock, not of this one.
func (e *election) stamped(record resourcelock.LeaderElectionRecord) resourcelock.LeaderElectionRecord {
	now := e.store.now().Truncate(time.Microsecond) // which a Lease keeps
	if !now.After(e.renewed) {                      // a clock that stands still must not make us look dead
		now = e.renewed.Add(time.Microsecond)
	}
	e.renewed, e.sent = now, true
	if !e.holds {
		e.since, e.term = now, record.LeaderTransitions
	}
	record.AcquireTime, record.RenewTime = metav1.NewTime(e.since), metav1.NewTime(now)
	return record
}

// wrote notes what came of writing the Lease. Its term counts from before the request was sent: other
// appliers count it from when they see it.
func (e *election) wrote(ctx context.Context, verb string, record resourcelock.LeaderElectionRecord, began time.Duration, err error) error {
	e.written = nil
	if err != nil {
		return e.note(ctx, verb, err)
	}
	e.holds, e.answered, e.trouble, e.written = true, true, nil, &record
	e.fence.renew(began)
	return nil
}

// note remembers an error, and ends the election if it won't pass.
func (e *election) note(ctx context.Context, verb string, err error) error {
	if ctx.Err() != nil && e.trouble != nil {
		return err // that time is up tells less than what took it
	}
	e.trouble = err
	if !e.holds && !e.passes(err) {
		e.end(e.store.failure(verb, leases, err))
	}
	return err
}

// passes says whether it is worth to try again: after a race with somebody else, and
// after troubles of a server that has answered before.
func (e *election) passes(err error) bool {
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return true
	case !e.answered:
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // there was no answer
	}
	code := status.Status().Code
	return code >= 500 || apierrors.IsTooManyRequests(err)
}
