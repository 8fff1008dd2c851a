package lock

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record/bootclock"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// An election is client-go's leader election for a lock. It differs in its end: client-go expects a leader to
// exit when it has lost the Lease, and here the work under the lock ends first, and gets the reason. So the
// election implements the interface of client-go's LeaseLock, and checks each read and write of the Lease.
type election struct {
	*resourcelock.LeaseLock
	lock    Lock
	options Options

	elected chan struct{}
	// ended is the context of the election. Its cause is the reason for the end of the election.
	ended context.Context
	end   context.CancelCauseFunc
	left  chan struct{} // closed when the election's goroutine has returned

	fence fence

	// The following fields belong to the election's goroutine until it has returned.
	first    *resourcelock.LeaderElectionRecord // the first record of another holder
	holds    bool                               // the Lease is ours
	sent     bool                               // the Lease may be ours: a write was sent
	answered bool                               // the server has answered a request of ours
	since    time.Time                          // the time at which we acquired the Lease, by the server's clock
	term     int                                // the LeaderTransitions of the Lease by then
	renewed  time.Time                          // the time of our last renewal, by the server's clock
	failed   error                              // the error of the last request; nil if it has succeeded
}

// Acquire acquires the lock, and creates its namespace if there is none. The Hold has to be released. A dead
// holder loses the lock when it has not renewed it for its duration. The duration is measured from when this
// process observes the Lease, because clocks differ.
func (l Lock) Acquire(ctx context.Context, options Options) (*Hold, error) {
	if err := CheckRelease(l.Release); err != nil {
		return nil, err
	}
	e, err := l.elect(ctx, options.withDefaults())
	if err != nil {
		return nil, err
	}
	select {
	case <-e.elected:
		return newHold(ctx, e), nil
	case <-e.ended.Done():
		err = context.Cause(e.ended)
	case <-ctx.Done():
		err = fmt.Errorf("lock release %q: %w", l.Release, context.Cause(ctx))
	}
	e.leave()
	return nil, err
}

// elect starts an election.
func (l Lock) elect(ctx context.Context, o Options) (*election, error) {
	e := &election{
		LeaseLock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.Namespace, Name: Name(l.Release)},
			Client:     l.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.Holder},
			Labels:     map[string]string{Label: l.Release},
		},
		lock: l, options: o,
		elected: make(chan struct{}), left: make(chan struct{}),
		fence: fence{renewed: make(chan struct{})},
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e, LeaseDuration: o.Duration, RenewDeadline: o.deadline(), RetryPeriod: o.retry(),
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(e.elected) },
			OnStoppedLeading: func() {},
		},
		// ReleaseOnCancel would release the Lease while the work under it may not have ended, or after
		// another process has acquired it.
	})
	if err != nil {
		return nil, fmt.Errorf("lock release %q: %w", l.Release, err)
	}
	// The election outlives ctx, because the work under the lock may. The logs of client-go are not for users.
	ctx = klog.NewContext(context.WithoutCancel(ctx), klog.New(nil))
	e.ended, e.end = context.WithCancelCause(ctx)
	go func() {
		defer close(e.left)
		elector.Run(e.ended)
		e.end(e.notRenewed())
	}()
	return e, nil
}

// leave ends the election, and releases the Lease if it is ours. If that fails, the lock expires after its
// duration, so the error is ignored.
func (e *election) leave() {
	e.end(nil)
	<-e.left
	if !e.sent {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ended), e.options.deadline())
	defer cancel()
	_ = cluster.RetryOnConflict(retry.DefaultRetry, func() error {
		record, _, err := e.LeaseLock.Get(ctx)
		if err != nil || record.HolderIdentity != e.options.Holder || e.holds && e.takenBy(record) != "" {
			return err
		}
		record.HolderIdentity = ""
		record.RenewTime = metav1.NewTime(e.lock.now())
		return e.LeaseLock.Update(ctx, *record)
	})
}

// remove deletes the Lease if it is ours. Another program may have annotated it meanwhile.
func (e *election) remove(ctx context.Context) error {
	leases := e.lock.Client.CoordinationV1().Leases(e.lock.Namespace)
	err := cluster.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := leases.Get(ctx, Name(e.lock.Release), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if taken := e.takenBy(resourcelock.LeaseSpecToLeaderElectionRecord(&found.Spec)); taken != "" {
			return takenError{e.lost(taken)}
		}
		only := metav1.Preconditions{UID: &found.UID, ResourceVersion: &found.ResourceVersion}
		return leases.Delete(ctx, found.Name, metav1.DeleteOptions{Preconditions: &only})
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil, IsTaken(err):
		return err
	default:
		return e.lock.leaseFailure("delete", err)
	}
}

// notRenewed returns the error of an election whose time to renew is over. After a conflict, as when the
// process was stopped between reading the Lease and writing it, the Lease is read once more, for its holder.
func (e *election) notRenewed() error {
	if e.holds && apierrors.IsConflict(e.failed) {
		ctx, cancel := context.WithTimeout(e.ended, e.options.retry())
		defer cancel()
		if record, _, err := e.LeaseLock.Get(ctx); err == nil && e.takenBy(record) != "" {
			return takenError{e.lost(e.takenBy(record))}
		}
	}
	how := fmt.Sprintf("it could not be renewed for %s", e.options.deadline())
	if e.failed != nil {
		how += ": " + printable.Error(e.failed).Error()
	}
	return e.lost(how)
}

// lost returns the error of a lost lock.
func (e *election) lost(how string) error {
	return fmt.Errorf("release %q: %w: %s", e.lock.Release, ErrLost, how)
}

// Get reads the Lease, and ends the election if another process has taken or deleted the acquired Lease.
func (e *election) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := e.LeaseLock.Get(ctx)
	e.answered = e.answered || err == nil || apierrors.IsNotFound(err)
	switch {
	// client-go would create the Lease again, although another process may have held it
	case e.holds && apierrors.IsNotFound(err):
		err = e.lost("its Lease was deleted")
		e.end(err)
	case err != nil:
		e.note(ctx, "get", err)
	case e.holds && e.takenBy(record) != "": // client-go would acquire the Lease again once it is free
		err = takenError{e.lost(e.takenBy(record))}
		e.end(err)
	case !e.holds && IsEarlier(record.HolderIdentity, e.options.Container, e.options.Holder):
		// client-go acquires it, as one that was released: unless it has changed meanwhile, with a new term
		record.HolderIdentity = ""
	case !e.holds:
		e.look(record)
	}
	return record, raw, err
}

// takenBy returns how a Lease differs from the acquired one, because another process holds it or has held it
// meanwhile. It returns "" for the same Lease.
func (e *election) takenBy(record *resourcelock.LeaderElectionRecord) string {
	switch {
	case record.HolderIdentity == "":
		return "another applier has taken it in the meantime, and freed it"
	case record.HolderIdentity != e.options.Holder:
		return printable.Line(record.HolderIdentity) + " has taken it"
	case !record.AcquireTime.Time.Equal(e.since) || record.LeaderTransitions != e.term:
		return "another applier of the same name has taken it"
	default:
		return ""
	}
}

// look ends an election without Options.Wait, once another process has renewed the Lease.
func (e *election) look(record *resourcelock.LeaderElectionRecord) {
	if record.HolderIdentity == "" || record.HolderIdentity == e.options.Holder {
		return
	}
	holder := holderOf(record)
	switch {
	case e.first == nil:
		e.first = record
		e.options.OnHeld(holder)
	case !e.options.Wait && *record != *e.first: // the holder is alive
		e.end(&HeldError{Release: e.lock.Release, Holder: holder, Age: e.lock.now().Sub(holder.Since)})
	}
}

// Create creates the Lease, held by this process, and its namespace if there is none.
func (e *election) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return e.write(ctx, "create", record, func(record resourcelock.LeaderElectionRecord) error {
		_, err := e.lock.Client.CoreV1().Namespaces().Get(ctx, e.lock.Namespace, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) { // it may exist, and the user may not read it
			err = e.LeaseLock.Create(ctx, record)
		}
		if apierrors.IsNotFound(err) {
			if err = e.lock.makeNamespace(ctx); err == nil {
				err = e.LeaseLock.Create(ctx, record)
			}
		}
		return err
	})
}

// Update acquires the Lease or renews it.
func (e *election) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return e.write(ctx, "update", record, func(record resourcelock.LeaderElectionRecord) error {
		return e.LeaseLock.Update(ctx, record)
	})
}

// write writes the Lease, with the times of the server's clock. Its duration starts before the request is
// sent: for other processes it starts when they observe the Lease.
func (e *election) write(ctx context.Context, verb string, record resourcelock.LeaderElectionRecord,
	send func(resourcelock.LeaderElectionRecord) error) error {
	now := e.lock.now().Truncate(time.Microsecond) // the resolution of a Lease
	if !now.After(e.renewed) {                     // the clock stands still: the Lease would not change
		now = e.renewed.Add(time.Microsecond)
	}
	e.renewed, e.sent = now, true
	if !e.holds {
		e.since, e.term = now, record.LeaderTransitions
	}
	record.AcquireTime, record.RenewTime = metav1.NewTime(e.since), metav1.NewTime(now)
	began := bootclock.Now()
	if err := send(record); err != nil {
		e.note(ctx, verb, err)
		return err
	}
	e.holds, e.answered, e.failed = true, true, nil
	e.fence.renew(began)
	return nil
}

// makeNamespace creates the namespace of the Lease, and then reads it once more, from the server's cache: if a
// namespace is not in this cache yet, the server delays requests in the namespace for 50 ms.
func (l Lock) makeNamespace(ctx context.Context) error {
	namespaces := l.Client.CoreV1().Namespaces()
	made, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.Namespace}},
		metav1.CreateOptions{FieldManager: "runlevel"})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return l.failure("create namespaces "+l.Namespace, err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = namespaces.Get(ctx, l.Namespace, metav1.GetOptions{ResourceVersion: made.ResourceVersion})
	return nil
}

// note saves the error of a request, and ends the election if a retry can't succeed.
func (e *election) note(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil && e.failed != nil {
		return // the last error is the reason why the time was not enough
	}
	e.failed = err
	if !e.holds && !e.isRetryable(err) {
		e.end(e.lock.leaseFailure(verb, err))
	}
}

// isRetryable reports whether a retry may succeed: after a conflict with another process, and after an outage
// of a server that has answered before.
func (e *election) isRetryable(err error) bool {
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return true
	default:
		return e.answered && cluster.IsOutage(err)
	}
}
