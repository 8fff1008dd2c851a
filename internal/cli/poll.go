package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
)

// How often a cluster is asked for what is watched: as often as takes a tenth of the time, within bounds.
const (
	pollRarely = 30 * time.Second
	pollShare  = 10
)

// kindsAnew is how often the kinds that the cluster serves are asked for again.
const kindsAnew = 30 * time.Second

// reachedWithin is how long the API server may take to say that it is there, while something is watched.
const reachedWithin = 10 * time.Second

// A poll asks a cluster for a value again and again, and shows it.
type poll[T any] struct {
	cluster *cluster.Cluster
	often   time.Duration // the shortest pause
	// ask returns an outageError if the cluster does not answer. The value before is shown again then.
	ask  func(context.Context) (T, error)
	show func(T, error) error // the error is the outageError of now, or nil
}

// run shows a value, and each that comes after it, until the context ends.
func (p poll[T]) run(ctx context.Context, last T) error {
	refreshed, took := time.Now(), time.Duration(0)
	var outage error
	for {
		if err := p.show(last, outage); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(max(took*pollShare, p.often), pollRarely)):
		}
		began := time.Now()
		if began.Sub(refreshed) > kindsAnew {
			p.cluster.Refresh()
			refreshed = began
		}
		next, err := p.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, new(outageError)):
			outage, took = err, 0 // how long an outage lasts says nothing of the next answer
		case err != nil:
			return err
		default:
			last, outage, took = next, nil, time.Since(began)
		}
	}
}

// An outageError says why a cluster does not answer now.
type outageError struct{ error }

func (o outageError) Unwrap() error { return o.error }

// reach returns an outageError if the API server does not answer.
func reach(ctx context.Context, c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, reachedWithin)
	defer cancel()
	err := getVersion(ctx, c)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return outageError{fmt.Errorf("it gives no answer in %s", reachedWithin)}
	default:
		return outageError{err}
	}
}

// getVersion asks the API server for its version, which is the least that it can say.
func getVersion(ctx context.Context, c *cluster.Cluster) error {
	return c.Client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
}
