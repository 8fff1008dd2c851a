package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ErrSuperseded is the cause with which an apply ends when its session applies something else.
var ErrSuperseded = &reason.Error{Reason: "Superseded", Message: "another payload is applied instead"}

// ErrYielded ends an apply that goes on after an outage, if another process has applied something else meanwhile.
var ErrYielded = &reason.Error{Reason: "Yielded", Message: "while the cluster did not answer, something else was applied"}

// errReleased is the cause with which an apply of a released session ends.
var errReleased = errors.New("the session was released")

// A Session holds the lock of a release, and applies payloads under it: one at a time, each until the next
// one supersedes it.
type Session struct {
	cluster *cluster.Cluster
	lock    lock.Lock
	options lock.Options
	ctx     context.Context // that Hold was called with
	turn    chan struct{}   // has one element, which the apply that runs takes out
	hold    *lock.Hold      // nil while the lock is lost; guarded by turn
	wasLost bool            // another process may have had the lock since the last apply; guarded by turn
	keeper  atomic.Pointer[keep.Keeper]
	held    atomic.Pointer[lock.Hold] // the last one, for those who do not have the turn

	mu         sync.Mutex
	supersede  context.CancelCauseFunc // ends the apply that runs, or waits for its turn; nil if there is none
	isReleased bool
}

// Hold acquires the lock of a release, and returns a session, which has to be released. It ends with ctx.
func Hold(ctx context.Context, c *cluster.Cluster, release, namespace string, options lock.Options) (*Session, error) {
	namespace = cmp.Or(namespace, DefaultNamespace)
	if options.Holder == "" {
		options.Holder = lock.NewHolder(options.Container) // one for the whole session, which takes the lock again after an outage
	}
	s := &Session{
		cluster: c, lock: lock.Lock{Client: c.Client, Namespace: namespace, Release: release, Now: c.Now}, options: options, ctx: ctx,
		turn: make(chan struct{}, 1),
	}
	s.turn <- struct{}{}
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
	s.hold = hold
	s.held.Store(hold)
	context.AfterFunc(hold.Context(), func() { cancel(nil) })
	return nil
}

// ensureHold makes the session hold the lock, which it may have lost since the last apply. It does not wait for another
// process that has taken the lock: what that one applies counts.
func (s *Session) ensureHold(ctx context.Context) error {
	if s.hold != nil {
		lost := s.hold.Check(ctx)
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

// lose gives up a lock that is lost, and returns the error of what was done under it.
func (s *Session) lose(err error) error {
	err = s.hold.Release(err)
	s.hold, s.wasLost = nil, true
	return err
}

// Release ends what is applied or kept in place, and frees the lock. It returns the error of what was done, or
// that the lock was lost meanwhile. The session applies nothing more.
func (s *Session) Release(err error) error {
	s.mu.Lock()
	s.isReleased = true
	if s.supersede != nil {
		s.supersede(context.Canceled)
	}
	s.mu.Unlock()
	<-s.turn
	defer func() { s.turn <- struct{}{} }()
	if s.hold == nil {
		return err
	}
	err = s.hold.Release(err)
	s.hold = nil
	return err
}

// Apply applies a payload. If an apply of this session runs, or keeps its payload in place, that ends first,
// with ErrSuperseded.
//
// With Options.Keep it returns when ctx ends, when an object can't be applied, or when another process has
// taken the lock or applied something else. It goes on after an outage of the API server. If the lock was lost since the
// last apply, it is acquired again, for what was begun last.
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
		if options.OnInterrupted != nil && outcome.Report != nil { // else it was reported already
			options.OnInterrupted(outcome.Err)
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

// Inspect returns what an Apply of a payload would find on the cluster, and the findings of the gate. It changes
// nothing, and an apply that runs goes on.
func (s *Session) Inspect(ctx context.Context, release *payload.Payload, options Options) *Outcome {
	options.Namespace = s.lock.Namespace
	r := newRun(s.cluster, release, options)
	r.outcome.Err = r.inspect(ctx, nil)
	return r.outcome
}

// Held returns a context that ends when the lock is lost which the session holds now, or held last.
func (s *Session) Held() context.Context { return s.held.Load().Context() }

// Problems returns the objects that can't be kept in place now: those that fail, and those that another writer changes
// again and again.
func (s *Session) Problems() []keep.Event {
	if keeper := s.keeper.Load(); keeper != nil {
		return keeper.Problems()
	}
	return nil
}

// UnwatchedKinds returns how many kinds of the release have changes that are not seen now.
func (s *Session) UnwatchedKinds() int {
	if keeper := s.keeper.Load(); keeper != nil {
		return keeper.UnwatchedKinds()
	}
	return 0
}

// begin supersedes the apply that runs, and waits until it has ended. The context that it returns ends when the
// next one begins, or the session does. With a context that has ended already, it supersedes nothing: the apply that runs
// may be its successor.
func (s *Session) begin(ctx context.Context) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	end := func() {
		stop()
		cancel(nil)
	}
	if !s.supersedeBy(ctx, cancel) {
		end()
		return nil, nil, context.Cause(ctx)
	}
	select {
	case <-s.turn:
	case <-ctx.Done():
		end()
		return nil, nil, context.Cause(ctx)
	}
	return ctx, func() {
		s.turn <- struct{}{}
		end()
	}, nil
}

// supersedeBy makes an apply the one that is superseded next, and ends the one before. It returns false if the context of
// the apply has ended.
func (s *Session) supersedeBy(ctx context.Context, cancel context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	if s.supersede != nil {
		s.supersede(ErrSuperseded)
	}
	s.supersede = cancel
	if s.isReleased {
		cancel(errReleased)
	}
	return true
}

// apply applies a payload once, under the lock.
func (s *Session) apply(ctx context.Context, release *payload.Payload, options Options) *Outcome {
	r := newRun(s.cluster, release, options)
	if r.outcome.Err = context.Cause(ctx); r.outcome.Err != nil {
		return r.outcome
	}
	if r.outcome.Err = s.ensureHold(ctx); r.outcome.Err != nil {
		return r.outcome
	}
	if s.wasLost {
		r.options = r.options.afterOutage()
	}
	hold := s.hold
	held, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(hold.Context(), func() { end(context.Cause(hold.Context())) })()
	r.onKeep = s.keeper.Store
	r.outcome.Err = r.applyUnder(held, hold)
	s.keeper.Store(nil)
	s.wasLost = s.wasLost && !r.outcome.IsSame
	if lost := hold.Check(context.WithoutCancel(ctx)); lost != nil {
		r.outcome.Err = s.lose(r.outcome.Err)
	}
	return r.outcome
}

// isOutage reports whether an apply ended because the API server gave no answer, for longer than the lock lasts
// or from the beginning.
func isOutage(o *Outcome) bool {
	isNotRenewed := errors.Is(o.Err, lock.ErrLost) && !lock.IsTaken(o.Err)
	return isNotRenewed || o.Report == nil && cluster.IsOutage(o.Err)
}

// answersEvery is how often a server is asked whether it is back.
const answersEvery = time.Second

// awaitAnswer waits until the API server answers a request for the lock.
func (s *Session) awaitAnswer(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, answersEvery, false, func(ctx context.Context) (bool, error) {
		_, err := s.lock.Holder(ctx)
		return !cluster.IsOutage(err), nil
	})
}

// afterOutage returns the options to go on after an outage. What another process has applied meanwhile stays.
func (o Options) afterOutage() Options {
	o.Apply.Mode = "" // the requested mode was for the first apply
	o.onlySame = true
	return o
}
