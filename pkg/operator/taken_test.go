package operator_test

import (
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/lock"
	"github.com/runlevel/runlevel/pkg/operator"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/rollout"
)

// A cable sends requests while it is not cut.
type cable struct {
	next  http.RoundTripper
	isCut *atomic.Bool
}

// RoundTrip sends a request.
func (c cable) RoundTrip(request *http.Request) (*http.Response, error) {
	if c.isCut.Load() {
		return nil, &url.Error{Op: request.Method, URL: request.URL.String(), Err: syscall.ECONNREFUSED}
	}
	return c.next.RoundTrip(request)
}

// TestAnOperatorEndsIfAnotherOneHasTakenItsLock while it was cut off: it is to start again as the one that waits.
func TestAnOperatorEndsIfAnotherOneHasTakenItsLock(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.prepare("1.0.0", shop)
	s.options.LockDuration = 6 * time.Second
	var isCut atomic.Bool
	config := rest.CopyConfig(s.sandbox.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return cable{next, &isCut} })
	ended := make(chan error, 1)
	go func() { ended <- operator.Run(t.Context(), config, s.options) }()
	s.until("installed", isAt("1.0.0"))
	isCut.Store(true)
	c, err := cluster.Connect(s.sandbox.Config)
	s.must(err)
	other, err := rollout.Hold(t.Context(), c, payload.DefaultName, system, lock.Options{Wait: true, Duration: 10 * time.Second})
	s.must(err)
	isCut.Store(false)
	select {
	case err := <-ended:
		if !errors.As(err, new(*lock.HeldError)) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for the lock")
	}
	s.must(other.Release(nil))
}
