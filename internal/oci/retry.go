package oci

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A request that fails for a time is sent again after firstWait, and after three times as long each time.
const (
	firstWait     = 200 * time.Millisecond
	waitFactor    = 3
	maxAttempts   = 3           // without progress
	maxPatient    = 6           // attempts of a copy: about 24 seconds
	maxRetryAfter = time.Minute // a registry that wants a longer pause is not asked again
)

// BePatient makes a store for reading outlast outages as long as a target does.
func BePatient(store Store) {
	if registry, isRegistry := store.(*registryStore); isRegistry {
		registry.attempts.Store(maxPatient)
	}
}

// A temporaryError is an error after which another attempt may succeed.
type temporaryError struct {
	err  error
	wait time.Duration // the pause that the registry asks for; 0 if it doesn't
}

func (t *temporaryError) Error() string { return t.err.Error() }
func (t *temporaryError) Unwrap() error { return t.err }

// A retrier counts failed attempts since the last progress.
type retrier struct {
	failures, limit int32
	furthest        int64 // offset: whoever loses what it had makes no progress by getting it again
}

// reach begins to count anew after progress.
func (r *retrier) reach(offset int64) {
	if offset-r.furthest >= minProgress {
		r.furthest, r.failures = offset, 0
	}
}

// pause returns nil after a pause if there should be another attempt, and the error of the last one otherwise, which is
// no longer marked as temporary: callers do not begin again.
func (r *retrier) pause(ctx context.Context, err error) error {
	var temporary *temporaryError
	r.failures++
	switch isTemporary := errors.As(err, &temporary); {
	case isTemporary && r.failures >= r.limit:
		return temporary.err
	case !isTemporary || ctx.Err() != nil:
		return err
	}
	wait := firstWait
	for range r.failures - 1 {
		wait *= waitFactor
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(max(temporary.wait, wait/2+rand.N(wait))): // not all at once
		return nil
	}
}

// retry calls a function until it succeeds, fails for good, or fails too often.
func retry(ctx context.Context, limit int32, try func() error) error {
	attempts := retrier{limit: limit}
	for {
		err := try()
		if err == nil {
			return nil
		}
		if err := attempts.pause(ctx, err); err != nil {
			return err
		}
	}
}

func isTemporaryStatus(code int) bool {
	const clientClosed = 499 // of nginx
	switch code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, clientClosed:
		return true
	default:
		return code >= http.StatusInternalServerError && code != http.StatusNotImplemented
	}
}

// isDropped reports whether a connection has ended while it was used.
func isDropped(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "http2: ") || strings.Contains(err.Error(), "stream error: ")
}

// retryAfter returns the pause that a registry asks for, and whether it is short enough.
func retryAfter(header http.Header) (time.Duration, bool) {
	text := header.Get("Retry-After")
	if date, err := http.ParseTime(text); err == nil {
		wait := time.Until(date)
		return wait, wait <= maxRetryAfter
	}
	seconds, err := strconv.Atoi(text)
	return time.Duration(seconds) * time.Second, err != nil || seconds <= int(maxRetryAfter/time.Second)
}
