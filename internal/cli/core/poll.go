package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/runlevel/runlevel/internal/cli/live"
	"github.com/runlevel/runlevel/internal/cluster"
)

// The interval of a poll is ten times as long as the last read took, within bounds.
const (
	longestInterval = 30 * time.Second
	pollShare       = 10
)

// kindsInterval is the interval at which the kinds that the cluster serves are read again.
const kindsInterval = 30 * time.Second

// reachTimeout is how long the API server may take to respond during a poll.
const reachTimeout = 10 * time.Second

// A Poll reads a value from a cluster at intervals, and shows it.
type Poll[T any] struct {
	Cluster  *cluster.Cluster
	Interval time.Duration // the shortest one
	// Read returns an error of Outage if the cluster does not respond. The previous value is shown again then.
	Read func(context.Context) (T, error)
	Show func(T, error) error // the error is one of Outage or nil
}

// Run shows a value, and each later one, until the context ends.
func (p Poll[T]) Run(ctx context.Context, last T) error {
	refreshed, took := time.Now(), time.Duration(0)
	var outage error
	for {
		if err := p.Show(last, outage); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(max(took*pollShare, p.Interval), longestInterval)):
		}
		began := time.Now()
		if began.Sub(refreshed) > kindsInterval {
			p.Cluster.Refresh()
			refreshed = began
		}
		next, err := p.Read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, new(outageError)):
			outage, took = err, 0 // the time of a failed read does not count
		case err != nil:
			return err
		default:
			last, outage, took = next, nil, time.Since(began)
		}
	}
}

// An outageError is the reason why a cluster does not respond.
type outageError struct{ error }

func (o outageError) Unwrap() error { return o.error }

// Outage makes an error the reason why a cluster does not respond.
func Outage(err error) error { return outageError{err} }

// Reach returns an error of Outage if the API server does not respond.
func Reach(ctx context.Context, c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	err := c.Ping(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return outageError{fmt.Errorf("no response within %s", reachTimeout)}
	default:
		return outageError{err}
	}
}

// AreaOn returns an area on the terminal; nil if there is no terminal, or the format is JSON or YAML.
func AreaOn(out io.Writer, format Output) *live.Area {
	terminal := live.TerminalOf(out)
	if terminal == nil || format == JSON || format == YAML {
		return nil
	}
	return live.NewArea(terminal)
}
