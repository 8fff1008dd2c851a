package operator_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/operator"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A life is the connection of one operator, until a write kills it. That write reaches the API server, and its response
// is lost.
type life struct {
	kill    context.CancelFunc
	isDead  *atomic.Bool
	isFatal func(*http.Request) bool
	skew    time.Duration // offset of the API server's clock, as this operator sees it
}

var errKilled = errors.New("the process was killed")

// tap sends a request.
func (l life) tap(request *http.Request, send http.RoundTripper) (*http.Response, error) {
	if l.isDead.Load() {
		return nil, errKilled
	}
	response, err := send.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if now, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		response.Header.Set("Date", now.Add(l.skew).UTC().Format(http.TimeFormat))
	}
	if isWrite(request) && response.StatusCode < 300 && l.isFatal(request) {
		l.isDead.Store(true)
		l.kill()
	}
	if l.isDead.Load() {
		_ = response.Body.Close()
		return nil, errKilled
	}
	return response, nil
}

// isWrite returns whether a request changes anything. Reviews of rights do not.
func isWrite(request *http.Request) bool {
	return request.Method != http.MethodGet && !strings.Contains(request.URL.Path, "reviews") &&
		!strings.Contains(request.URL.RawQuery, "dryRun")
}

// live runs one operator after the other, until ctx ends, as a kubelet does. An operator ends when a write is fatal,
// when it has lost the lock, or when it has not reached the API server as it began. Skew is by how much the API
// server's clock is ahead for the next one.
func (s *stage) live(ctx context.Context, isFatal func(*http.Request) bool, skew func() time.Duration) {
	for ctx.Err() == nil {
		alive, kill := context.WithCancel(ctx)
		isDead, ahead := &atomic.Bool{}, skew()
		err := operator.Run(alive, sandboxtest.Tap(s.sandbox.Config, life{kill, isDead, isFatal, ahead}.tap), s.options)
		kill()
		if isDead.Load() { // an administrator who knows that may break the lock, which otherwise has to run out
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Namespace: system,
				Name:      "runlevel-release-default",
			}}
			_ = s.client.Delete(ctx, lease) // fails while the API server does not answer
		} else if err != nil {
			s.t.Log("an operator ended:", err)
		}
	}
}
