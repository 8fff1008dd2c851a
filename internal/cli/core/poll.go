package core

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/runlevel/runlevel/internal/cli/live"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/waiter"
)

// kindsInterval is the interval at which the kinds that the cluster serves are read again.
const kindsInterval = 30 * time.Second

// A Poll reads a value from a cluster at intervals, and shows it.
type Poll[T any] struct {
	Cluster  *cluster.Cluster
	Interval time.Duration // the shortest; an interval is ten times as long as the last read, and at most 30 seconds
	// Read returns an error of waiter.Outage if the cluster does not respond. The previous value is shown again then.
	Read func(context.Context) (T, error)
	Show func(T, error) error // the error is nil or that of Read
}

// Run shows a value, and each later one, until the context ends.
func (p Poll[T]) Run(ctx context.Context, last T) error {
	refreshed, isRead := time.Now(), true
	w := waiter.Waiter{
		Pause:  waiter.Pause{Shortest: p.Interval, Longest: 30 * time.Second, PerLook: 10},
		Report: func(_ context.Context, outage error) error { return p.Show(last, outage) },
	}
	err := w.Until(ctx, func(ctx context.Context) (waiter.Result, error) {
		if isRead {
			isRead = false
			return waiter.Again, nil
		}
		if time.Since(refreshed) > kindsInterval {
			p.Cluster.Refresh()
			refreshed = time.Now()
		}
		next, err := p.Read(ctx)
		if err == nil {
			last = next
		}
		return waiter.Again, err
	})
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil
	}
	return err
}

// AreaOn returns an area on the terminal; nil without a terminal, or if the format is JSON or YAML.
func AreaOn(out io.Writer, format Output) *live.Area {
	terminal := live.TerminalOf(out)
	if terminal == nil || format == JSON || format == YAML {
		return nil
	}
	return live.NewArea(terminal)
}
