// Package waiter looks at a cluster repeatedly until a condition holds. It has the loop of every command that waits:
// the pause between two looks, outages of the API server, and the periodic report of the missing conditions.
//
// It does not watch: its user passes a channel that signals changes, or a pause. Package objectwatch waits for one
// object by a watch, and package tombstone has a channel of changes.
//
// Start with Waiter.Until.
package waiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
)

// A Result is the result of one look.
type Result int

// The results.
const (
	Again  Result = iota // look again after the pause, or when something has changed
	AtOnce               // look again without a pause
	Done                 // the wait is over
)

// A Waiter configures a wait.
type Waiter struct {
	Pause Pause
	// Changed makes the waiter look once for each element that it receives, also for the first look. The wait ends when
	// the channel is closed. Without a channel, the waiter looks at once, and again after each pause.
	Changed <-chan struct{}
	// Report is called after a look that does not end the wait, with the outage that the look has met, if any: first
	// after ReportAfter, and then at most once per ReportInterval. Its error ends the wait. It may be nil.
	Report         func(ctx context.Context, outage error) error
	ReportAfter    time.Duration
	ReportInterval time.Duration
}

// A Pause is the time between two looks. It grows with the duration of the wait or of the last look, within bounds.
type Pause struct {
	Shortest time.Duration
	Longest  time.Duration // Shortest if it is 0
	PerWait  float64       // share of the time since the wait began
	PerLook  float64       // share of the time that the last look took; a look that met an outage does not count
}

// After returns the pause after a look that took a while, when the wait has taken a while.
func (p Pause) After(waited, looked time.Duration) time.Duration {
	wanted := time.Duration(p.PerWait*float64(waited) + p.PerLook*float64(looked))
	return max(p.Shortest, min(wanted, p.Longest))
}

// Until calls look until it returns Done or an error. An outage of the API server does not end the wait. If the context
// ends, Until returns its cause.
func (w Waiter) Until(ctx context.Context, look func(context.Context) (Result, error)) error {
	began := time.Now()
	nextReport, pause, isDue := began.Add(w.ReportAfter), time.Duration(0), w.Changed == nil
	for {
		if !isDue && w.pause(ctx, pause) {
			return context.Cause(ctx)
		}
		lookBegan := time.Now()
		result, err := look(ctx)
		looked := time.Since(lookBegan)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case IsOutage(err):
			result, looked = Again, 0
		case err != nil:
			return err
		case result == Done:
			return nil
		}
		if now := time.Now(); w.Report != nil && !now.Before(nextReport) {
			nextReport = now.Add(w.ReportInterval)
			if err := w.Report(ctx, err); err != nil {
				return err
			}
		}
		pause, isDue = w.Pause.After(time.Since(began), looked), result == AtOnce
	}
}

// pause waits until it is time to look again. It reports whether the wait is over.
func (w Waiter) pause(ctx context.Context, pause time.Duration) (isOver bool) {
	var elapsed <-chan time.Time
	if w.Changed == nil {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		elapsed = timer.C
	}
	select {
	case <-ctx.Done():
		return true
	case <-elapsed:
		return false
	case _, isOpen := <-w.Changed:
		return !isOpen
	}
}

// An outage is an error of a look that counts as an outage, whatever its type is.
type outage struct{ error }

func (o outage) Unwrap() error { return o.error }

// Outage returns an error that does not end a wait.
func Outage(err error) error { return outage{err} }

// IsOutage reports whether an error does not end a wait: the API server has not answered, or it has failed.
func IsOutage(err error) bool { return errors.As(err, new(outage)) || cluster.IsOutage(err) }

// reachTimeout limits the wait for a response of Reach.
const reachTimeout = 10 * time.Second

// Reach returns an error of Outage if the API server does not respond.
func Reach(ctx context.Context, c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	err := c.Ping(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return Outage(fmt.Errorf("no response within %s", reachTimeout))
	default:
		return Outage(err)
	}
}
