package cluster

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A ServerClock estimates the server's time from the Date headers of its responses. The zero value is this machine's
// clock.
type ServerClock struct {
	ahead atomic.Int64 // how far the server's clock is ahead of the local clock
}

// Now returns the time of the server.
func (c *ServerClock) Now() time.Time { return c.at(time.Now()) }

// Observe returns a transport that reads the time of the server from the responses of another one.
func (c *ServerClock) Observe(next http.RoundTripper) http.RoundTripper {
	return &observer{next: next, clock: c}
}

func (c *ServerClock) at(local time.Time) time.Time { return local.Add(time.Duration(c.ahead.Load())) }

// set reads the Date header of a response that has just arrived. It has whole seconds only, so the
// clock is corrected only if it is further off than that.
func (c *ServerClock) set(header string) {
	date, err := http.ParseTime(header)
	if err != nil {
		return
	}
	ahead := c.ahead.Load()
	if off := date.Sub(time.Now().Add(time.Duration(ahead))); off < -2*time.Second || off > time.Second {
		c.ahead.CompareAndSwap(ahead, ahead+int64(off)) // unless another response has just corrected it
	}
}

// An observer reads values from responses that the clients don't return: the server's time,
// whether an object was created or existed, and Retry-After.
type observer struct {
	next  http.RoundTripper
	clock *ServerClock
}

func (o *observer) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	o.clock.set(response.Header.Get("Date"))
	if seen, ok := request.Context().Value(observationKey{}).(*observation); ok {
		seen.status = response.StatusCode
		if seconds, err := strconv.Atoi(response.Header.Get(retryAfter)); err == nil {
			seen.retryAfter = seconds
			response.Header.Del(retryAfter)
		}
	}
	return response, nil
}

// retryAfter is the header for which client-go would retry a request itself, up
// to ten times: no caller would know of the retries, or could end them without cancelling a request.
// So the observer removes the header from the response, and the details of the returned error have its value.
const retryAfter = "Retry-After"

// An observation contains the facts about one call that its result lacks.
type observation struct {
	status     int
	warnings   []string
	retryAfter int // seconds
}

type observationKey struct{}

// observed returns a context for one call, and the observation of that call.
func observed(ctx context.Context) (context.Context, *observation) {
	seen := &observation{}
	return context.WithValue(ctx, observationKey{}, seen), seen
}

// complete adds the pause that the server requests to the error of the call.
func (o *observation) complete(err error) error {
	var refused *apierrors.StatusError
	if o.retryAfter > 0 && errors.As(err, &refused) {
		if refused.ErrStatus.Details == nil {
			refused.ErrStatus.Details = &metav1.StatusDetails{}
		}
		refused.ErrStatus.Details.RetryAfterSeconds = int32(o.retryAfter)
	}
	return err
}

// written returns the result of a call that writes an object.
func (o *observation) written(object *unstructured.Unstructured, err error) (WriteResult, error) {
	return WriteResult{Object: object, Created: o.status == http.StatusCreated, Warnings: o.warnings}, o.complete(err)
}

// warningsOfContext adds the server's warnings to the observation of their call.
type warningsOfContext struct{}

func (warningsOfContext) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	const miscellaneous = 299 // the only one that Kubernetes sends
	if seen, ok := ctx.Value(observationKey{}).(*observation); ok && code == miscellaneous && text != "" {
		seen.warnings = append(seen.warnings, text)
	}
}
