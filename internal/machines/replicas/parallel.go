package replicas

import (
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
)

// InBatches calls a function a number of times, in batches of which each is twice as large as the one before: if a quota or
// an admission policy refuses all requests, only one is sent. It returns the number of successes, and the first failure,
// after which no batch begins.
func InBatches(count, limit int, do func() error) (int, error) {
	done := 0
	for batch := 1; done < count; batch *= 2 {
		succeeded, failure := InParallel(min(batch, count-done), limit, func(int) error { return do() })
		done += succeeded
		if failure != nil {
			return done, failure
		}
	}
	return done, nil
}

// InParallel calls a function for each number below count, and returns the number of successes and the first failure.
func InParallel(count, limit int, do func(int) error) (int, error) {
	failures := make([]error, count)
	var group errgroup.Group
	group.SetLimit(limit)
	for i := range count {
		group.Go(func() error {
			failures[i] = do(i)
			return nil
		})
	}
	_ = group.Wait() // each failure is in its place
	failed := slices.DeleteFunc(failures, func(err error) bool { return err == nil })
	return count - len(failed), errors.Join(failed[:min(1, len(failed))]...)
}
