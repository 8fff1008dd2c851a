package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/reason"
)

// A Lock says how to lock a release.
type Lock struct {
	// Holder says who we are; no two that run may say the same. "" means DefaultHolder.
	Holder string
	// Duration is how long the lock outlives a holder that died, in whole seconds. Zero
	// means half a minute.
	Duration time.Duration
	// Wait waits until whoever holds the lock leaves it.
	Wait bool
	// Say is called once if somebody holds the lock, before anybody waits: either for its
	// turn, or for a sign of life of the holder.
	Say func(Held)
}

// withDefaults fills in what was left out.
func (l Lock) withDefaults() Lock {
	if l.Holder == "" {
		l.Holder = DefaultHolder()
	}
	if l.Duration <= 0 {
		l.Duration = 30 * time.Second
	}
	if rest := l.Duration % time.Second; rest > 0 { // a Lease counts seconds
		l.Duration += time.Second - rest
	}
	if l.Say == nil {
		l.Say = func(Held) {}
	}
	return l
}

// deadline is how long a holder tries to renew the lock before it gives it up. Together
// with one retry it leaves a fifth of the duration, or more, to end what runs before
// somebody else may begin.
func (l Lock) deadline() time.Duration { return l.Duration * 2 / 3 }

// retry is how often a holder renews the lock, and how often others look.
func (l Lock) retry() time.Duration { return l.Duration / 10 }

// Held says who holds a lock.
type Held struct {
	Holder  string
	Since   time.Time
	Renewed time.Time     // when the holder gave the last sign of life
	Outlast time.Duration // how long the lock outlives the last sign of life
}

// IsDead says whether whoever holds the lock has given no sign of life for longer than the
// lock outlives it.
func (h Held) IsDead(now time.Time) bool { return now.Sub(h.Renewed) > h.Outlast }

// Keeping ends the name of a holder that keeps the release in place.
const Keeping = " (--watch)"

// Keeps says whether the holder keeps the release in place.
func (h Held) Keeps() bool { return strings.HasSuffix(h.Holder, Keeping) }

func heldBy(r *resourcelock.LeaderElectionRecord) Held {
	return Held{Holder: r.HolderIdentity, Since: r.AcquireTime.Time, Renewed: r.RenewTime.Time, Outlast: time.Duration(r.LeaseDurationSeconds) * time.Second}
}

// ErrLost is the cause with which the context of what runs under a lock ends, when the
// lock is lost.
var ErrLost = &reason.Error{Reason: ReasonLost, Message: "the lock is lost"}

// A taken error is that of a lock which is lost to somebody.
type taken struct{ error }

func (t taken) Unwrap() error { return t.error }

// IsTaken says whether a lock is lost because somebody else has it, not because nobody answered
// for too long.
func IsTaken(err error) bool { return errors.As(err, new(taken)) }

// A HeldError is a lock that somebody else holds, and is alive.
type HeldError struct {
	Release string
	Held    Held
	Age     time.Duration // since when it is held
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("release %q is being applied by %s since %s (%s ago): wait with --wait-lock, or try again later",
		e.Release, printable.Line(e.Held.Holder), e.Held.Since.UTC().Format(time.RFC3339), duration.HumanDuration(max(0, e.Age)))
}

// Unwrap gives the error its reason.
func (e *HeldError) Unwrap() error {
	return &reason.Error{Reason: ReasonHeld, Message: "somebody else holds the lock"}
}

// DefaultHolder says who we are: the user, the machine, the process, and something by
// chance, because in containers everybody is root and process 1.
func DefaultHolder() string {
	who, where := os.Getenv("USER"), "unknown"
	if current, err := user.Current(); err == nil {
		who = current.Username
	}
	if name, err := os.Hostname(); err == nil {
		where = name
	}
	return fmt.Sprintf("%s@%s:%d-%s", who, where, os.Getpid(), rand.String(5))
}

// Holding says who holds the lock, dead or alive; nil if nobody does.
func (s *Store) Holding(ctx context.Context) (*Held, error) {
	if err := CheckName(s.release); err != nil {
		return nil, err
	}
	found, err := s.client.CoordinationV1().Leases(s.namespace).Get(ctx, s.name(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, s.failure("get", leases, err)
	}
	held := heldBy(resourcelock.LeaseSpecToLeaderElectionRecord(&found.Spec))
	if held.Holder == "" {
		return nil, nil
	}
	return &held, nil
}

// Locked runs do while it holds the lock of the release, and returns when do has returned
// and the lock is free again, also if ctx has ended. The context of do ends with an
// ErrLost as its cause when somebody else has the lock, or soon may have.
//
// Whoever holds the lock and has died loses it when it was not renewed for its duration.
// That is measured here, by looking on, because clocks differ.
//
// A process that slept does not hear in time that its lock is lost. So do asks Hold.Check before each
// write; what do has done counts only if the lock still counts when it returns.
func (s *Store) Locked(ctx context.Context, l Lock, do func(ctx context.Context, held *Hold) error) error {
	if err := CheckName(s.release); err != nil {
		return err
	}
	e, err := s.elect(ctx, l.withDefaults())
	if err != nil {
		return err
	}
	defer e.leave()
	select {
	case <-e.elected:
	case <-e.ended.Done():
		return context.Cause(e.ended)
	case <-ctx.Done():
		return fmt.Errorf("lock release %q: %w", s.release, context.Cause(ctx))
	}
	held, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(e.ended, func() { end(context.Cause(e.ended)) })()
	if err = do(held, &Hold{e}); err == nil {
		err = e.check(context.WithoutCancel(ctx))
	}
	return explained(err, cmp.Or(context.Cause(held), context.Cause(e.ended))) // which may be on its way to what is held
}

// A Hold is a lock that is held. Nil is one that nobody can lose.
type Hold struct{ election *election }

// Requests returns a context for requests that an interruption of ctx is not to cut off. It ends when the lock
// is lost.
func (h *Hold) Requests(ctx context.Context) (context.Context, context.CancelFunc) {
	under, end := context.WithCancelCause(context.WithoutCancel(ctx))
	locks := []context.Context{ctx}
	if h != nil {
		locks = append(locks, h.election.ended)
	}
	var forgets []func() bool
	for _, lock := range locks {
		forgets = append(forgets, context.AfterFunc(lock, func() {
			if cause := context.Cause(lock); errors.Is(cause, ErrLost) {
				end(cause)
			}
		}))
	}
	return under, func() {
		for _, forget := range forgets {
			forget()
		}
		end(nil)
	}
}

// explained is the error of what ran under a lock, with that of the lock if it is lost.
func explained(err, cause error) error {
	switch {
	case err == nil, !errors.Is(cause, ErrLost), errors.Is(err, ErrLost):
		return err
	case err == context.Canceled:
		return cause
	default:
		return fmt.Errorf("%w (%w)", cause, err)
	}
}
