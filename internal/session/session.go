package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/internal/session/notify"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ErrSuperseded is the cause with which an apply ends when its session applies something else.
var ErrSuperseded = &reason.Error{Reason: "Superseded", Message: "another payload is applied instead"}

// ErrYielded ends an apply that would continue after an outage, if another process has applied something else.
var ErrYielded = &reason.Error{
	Reason:  "Yielded",
	Message: "while the cluster did not answer, something else was applied",
}

// errReleased is the cause with which an apply of a released session ends.
var errReleased = errors.New("the session was released")

// A Session holds the lock of a release, and applies payloads under it: one at a time, each until the next one
// supersedes it.
//
//	           Apply                          its apply ends    another process takes the lock   Release
//	idle       applying                                         lost                             released
//	applying   the apply before is cancelled, idle              lost, once the apply has ended   the apply is cancelled: released
//	           and applying once it has ended
//	lost       applying, if the lock is free; lost              lost                             released
//	released   fails                                                                             released
type Session struct {
	cluster *cluster.Cluster
	lock    lock.Lock
	options lock.Options
	ctx     context.Context // the argument of Hold

	notifier *notify.Notifier

	mu         sync.Mutex
	newest     *applyQueueEntry // entry of the last apply; nil before the first
	hold       *lock.Hold       // acquired last; released if isLost
	isLost     bool
	wasLost    bool       // another process may have had the lock since the last apply
	known      []entryKey // possible newest entries of the record if no other process has applied anything
	keeper     *keep.Keeper
	journal    *object.Journal // of the same payload as the keeper
	isReleased bool
}

// An applyQueueEntry is the place of an apply among those of a session. It begins when the entry before has ended.
type applyQueueEntry struct {
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when the apply has ended, and those before it
}

// Hold acquires the lock of a release, and returns a session, which has to be released. It ends with ctx.
func Hold(ctx context.Context, c *cluster.Cluster, release, namespace string, options lock.Options) (*Session, error) {
	namespace = cmp.Or(namespace, DefaultNamespace)
	if options.Holder == "" {
		// one for the whole session, which takes the lock again after an outage
		options.Holder = lock.NewHolder(options.Container)
	}
	s := &Session{
		cluster: c,
		lock:    lock.Lock{Client: c.Client, Namespace: namespace, Release: release, Now: c.Now},
		options: options,
		ctx:     ctx,
	}
	s.notifier = &notify.Notifier{Cluster: c, Namespace: namespace, Release: release}
	return s, s.acquire(ctx, s.options)
}

// acquire acquires the lock, and gives up when ctx ends. The Hold outlives ctx: it ends with the session.
func (s *Session) acquire(ctx context.Context, options lock.Options) error {
	current, cancel := context.WithCancelCause(s.ctx)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	hold, err := s.lock.Acquire(current, options)
	if err != nil {
		stop()
		cancel(nil)
		return err
	}
	if !stop() { // ctx has just ended
		return hold.Release(context.Cause(ctx))
	}
	s.set(func() { s.hold, s.isLost = hold, false })
	context.AfterFunc(hold.Context(), func() { cancel(nil) })
	return nil
}

// set changes the state of the session.
func (s *Session) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// held returns the lock; nil if it was lost and released.
func (s *Session) held() *lock.Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isLost {
		return nil
	}
	return s.hold
}

// ensureHold makes the session hold the lock, which it may have lost since the last apply. It does not wait for another
// process that has taken the lock: what that one applies counts.
func (s *Session) ensureHold(ctx context.Context) error {
	if hold := s.held(); hold != nil {
		lost := hold.Check(ctx)
		if !errors.Is(lost, lock.ErrLost) {
			return lost
		}
		if lost = s.lose(lost); lock.IsTaken(lost) {
			return lost
		}
	}
	options := s.options
	options.Wait = false
	return s.acquire(ctx, options)
}

// lose releases a lost lock, and returns the error of the apply under it.
func (s *Session) lose(err error) error {
	err = s.held().Release(err)
	s.set(func() { s.isLost, s.wasLost = true, true })
	return err
}

// Release ends the apply and the keeping, and frees the lock. It returns the error of the apply, or that the lock was
// lost meanwhile. The session applies nothing more.
func (s *Session) Release(err error) error {
	var last *applyQueueEntry
	s.set(func() { last, s.isReleased = s.newest, true })
	if last != nil {
		last.cancel(context.Canceled)
		<-last.ended
	}
	if hold := s.held(); hold != nil {
		err = hold.Release(err)
		s.set(func() { s.isLost = true })
	}
	return err
}

// Run applies a payload to a cluster, in a session of its own.
func Run(ctx context.Context, c *cluster.Cluster, release *payload.Payload, options Options) *Outcome {
	s, err := Hold(ctx, c, release.Name, options.Namespace, options.Lock)
	if err != nil {
		return &Outcome{Release: release.Name, Version: release.Version, Err: err}
	}
	outcome := s.Apply(ctx, release, options)
	outcome.Err = s.Release(outcome.Err)
	return outcome
}

// Apply applies a payload. If an apply of this session runs, or keeps its payload in place, that ends first,
// with ErrSuperseded.
//
// With Options.Keep it returns when ctx ends, when an object can't be applied, or when another process has taken the
// lock or applied something else. It continues after an outage of the API server. If the lock was lost since the last
// apply, Apply acquires it again, for the version that was begun last.
func (s *Session) Apply(ctx context.Context, release *payload.Payload, options Options) *Outcome {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return &Outcome{Release: release.Name, Version: release.Version, Err: err}
	}
	defer end()
	options.Namespace = s.lock.Namespace
	outcome := s.apply(ctx, release, options)
	for hasBegun := false; options.Keep != nil; {
		hasBegun = hasBegun || outcome.Report != nil
		if !hasBegun || !isOutage(outcome) || ctx.Err() != nil {
			break
		}
		if options.Observer != nil && outcome.Report != nil { // otherwise the outage is already reported
			outcome.IsInterrupted = true
			options.Observer.OnOutcome(outcome)
		}
		if s.awaitAnswer(ctx) != nil {
			if cause := context.Cause(ctx); errors.Is(cause, ErrSuperseded) {
				outcome.Err = fmt.Errorf("%w (%w)", cause, outcome.Err)
			}
			break
		}
		outcome = s.apply(ctx, release, options.afterOutage())
	}
	return outcome
}

// apply applies a payload once, under the lock.
func (s *Session) apply(ctx context.Context, release *payload.Payload, options Options) *Outcome {
	r := newRun(s.cluster, release, options)
	r.notifier = &runNotifier{Notifier: s.notifier, run: r}
	if r.outcome.Err = context.Cause(ctx); r.outcome.Err != nil {
		return r.outcome
	}
	if r.outcome.Err = s.ensureHold(ctx); r.outcome.Err != nil {
		return r.outcome
	}
	hold, wasLost := s.held(), false
	s.set(func() { wasLost, r.known = s.wasLost, s.known })
	if wasLost {
		r.options = r.options.afterOutage()
	}
	held, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(hold.Context(), func() { end(context.Cause(hold.Context())) })()
	r.onKeep = func(keeper *keep.Keeper) { s.set(func() { s.keeper, s.journal = keeper, r.journal }) }
	r.outcome.Err = r.applyUnder(held, hold)
	r.notifier.end(ctx)
	s.set(func() {
		s.keeper, s.journal, s.known, s.wasLost = nil, nil, r.known, s.wasLost && !r.outcome.IsSame
	})
	if lost := hold.Check(context.WithoutCancel(ctx)); lost != nil {
		r.outcome.Err = s.lose(r.outcome.Err)
	}
	return r.outcome
}

// Inspect returns what an Apply of a payload would find on the cluster, and the findings of the gate. It changes
// nothing, and does not interrupt an apply.
func (s *Session) Inspect(ctx context.Context, release *payload.Payload, options Options) *Outcome {
	options.Namespace = s.lock.Namespace
	r := newRun(s.cluster, release, options)
	r.outcome.Err = r.inspect(ctx, nil)
	return r.outcome
}

// Preview returns the changes that an Apply of a payload would make. It makes none, and does not interrupt an apply.
func (s *Session) Preview(ctx context.Context, release *payload.Payload, options Options) *Outcome {
	options.Namespace = s.lock.Namespace
	return newRun(s.cluster, release, options).preview(ctx, nil)
}

// Held returns a context that ends when the session loses its lock. If the session has lost the lock already, the
// context has ended.
func (s *Session) Held() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hold.Context()
}

// Kept returns the Keeper of the payload; nil if the payload is not kept in place.
func (s *Session) Kept() *keep.Keeper {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keeper
}

// Note changes the record while a payload is applied or kept in place.
func (s *Session) Note(ctx context.Context, change func(*record.Record)) error {
	s.mu.Lock()
	journal := s.journal
	s.mu.Unlock()
	if journal == nil {
		return errors.New("no payload is kept in place")
	}
	return journal.Note(ctx, change)
}

// begin supersedes the apply that runs, and waits until it has ended. The context that it returns ends when the
// next one begins, or the session does. With a context that has ended already, it supersedes nothing: the apply that
// runs may be its successor.
func (s *Session) begin(ctx context.Context) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	entry := &applyQueueEntry{cancel: cancel, ended: make(chan struct{})}
	end := func() {
		stop()
		cancel(nil)
		close(entry.ended)
	}
	before, err := s.queue(ctx, entry)
	switch {
	case err != nil:
		end()
		return nil, nil, err
	case before == nil:
		return ctx, end, nil
	}
	select {
	case <-before.ended:
		return ctx, end, nil
	case <-ctx.Done():
		go func() { // the next apply waits for the previous one
			<-before.ended
			end()
		}()
		return nil, nil, context.Cause(ctx)
	}
}

// queue adds an entry, and cancels the one before, which it returns; nil if there is none.
func (s *Session) queue(ctx context.Context, entry *applyQueueEntry) (before *applyQueueEntry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case s.isReleased:
		return nil, errReleased
	}
	before, s.newest = s.newest, entry
	if before != nil {
		before.cancel(ErrSuperseded)
	}
	return before, nil
}

// isOutage reports whether an apply ended because the API server gave no answer, for longer than the lock lasts
// or from the beginning.
func isOutage(o *Outcome) bool {
	isNotRenewed := errors.Is(o.Err, lock.ErrLost) && !lock.IsTaken(o.Err)
	return isNotRenewed || o.Report == nil && cluster.IsOutage(o.Err)
}

// answersEvery is the interval of checks whether the server answers again.
const answersEvery = time.Second

// awaitAnswer waits until the API server answers a request for the lock.
func (s *Session) awaitAnswer(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, answersEvery, false, func(ctx context.Context) (bool, error) {
		_, err := s.lock.Holder(ctx)
		return !cluster.IsOutage(err), nil
	})
}
