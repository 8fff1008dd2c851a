package operator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/operator"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A troubledTransport is one in which watches of the operator's own are cut, or reads of the record never end.
type troubledTransport struct {
	mu     sync.Mutex
	isDeaf bool
	hangs  chan struct{} // nil if nothing does
	open   []io.Closer
}

// troubled returns a connection with a transport whose troubles begin later.
func (s *stage) troubled() (*rest.Config, *troubledTransport) {
	transport := &troubledTransport{}
	return sandboxtest.Tap(s.sandbox.Config, transport.tap), transport
}

// deafen cuts the watches, or lets them be made again.
func (t *troubledTransport) deafen(isDeaf bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isDeaf = isDeaf
	for _, closer := range t.open {
		_ = closer.Close()
	}
	t.open = nil
}

// hang blocks reads of the record until the returned function is called.
func (t *troubledTransport) hang() (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	until := make(chan struct{})
	t.hangs = until
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.hangs = nil
		close(until)
	})
}

func (t *troubledTransport) tap(request *http.Request, send http.RoundTripper) (*http.Response, error) {
	isOwnWatch := request.URL.Query().Get("watch") == "true" && strings.HasSuffix(request.URL.Path, "/clusterversions")
	t.mu.Lock()
	isCut, hangs := isOwnWatch && t.isDeaf, t.hangs
	t.mu.Unlock()
	if isCut {
		return nil, errors.New("cut")
	}
	if hangs != nil && request.Method == http.MethodGet &&
		strings.HasSuffix(request.URL.Path, "/configmaps/runlevel-release-default") {
		<-hangs
	}
	answer, err := send.RoundTrip(request)
	if err == nil && isOwnWatch {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.open = append(t.open, answer.Body)
	}
	return answer, err
}

// run runs one more operator until the test ends.
func (s *stage) run(config *rest.Config, o operator.Options) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- operator.Run(ctx, config, o) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error("the operator:", err)
		}
	})
}

// untilProbed waits until a probe is answered with a code, and names a check among those that fail.
func (s *stage) untilProbed(url string, code int, failing string) {
	s.t.Helper()
	s.await(url+" is answered so: "+http.StatusText(code)+" "+failing, func() bool { return probe(url, code, failing) })
}

// probe returns whether a probe is answered with a code, and names a check among those that fail.
func probe(url string, code int, failing string) bool {
	answer, err := http.Get("http://" + url)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode == code && strings.Contains(string(text), failing)
}

// TestHangingPassIsNotAlive: when the pass ends, the operator is alive again.
func TestHangingPassIsNotAlive(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newStage(t)
	s.options.Listen = "127.83.2.1:8080"
	s.options.SetLimits(3*time.Second, time.Minute, time.Minute)
	config, trouble := s.troubled()
	s.prepare("1.0.0", shop)
	s.run(config, s.options)
	s.until("installed", isAt("1.0.0"))
	s.untilProbed(s.options.Listen+"/healthz", http.StatusOK, "")
	end := trouble.hang()
	t.Cleanup(end)
	edits := 0
	s.until("a pass hangs", func(v *configv1.ClusterVersion) bool {
		// an edit makes the operator read the record
		patch := fmt.Appendf(nil, `{"spec": {"channel": "stable-%d"}}`, edits)
		s.must(s.client.Patch(t.Context(), v, client.RawPatch("application/merge-patch+json", patch)))
		edits++
		return probe(s.options.Listen+"/healthz", http.StatusInternalServerError, "[-]loops failed")
	})
	s.update(s.push("1.0.1", shop))
	s.untilProbed(s.options.Listen+"/readyz", http.StatusOK, "")
	end()
	s.untilProbed(s.options.Listen+"/healthz", http.StatusOK, "")
	s.until("updated", isAt("1.0.1"))
}

// TestOperatorWithoutEvents: an operator whose watches are lost is not ready. If they stay lost while the API server
// answers, it is not alive.
func TestOperatorWithoutEvents(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newStage(t)
	s.options.Listen = "127.83.2.2:8080"
	s.options.SetLimits(time.Hour, time.Second, 5*time.Second)
	config, trouble := s.troubled()
	trouble.deafen(true)
	s.prepare("1.0.0", shop)
	s.run(config, s.options)
	s.untilProbed(s.options.Listen+"/readyz", http.StatusInternalServerError, "[-]watches failed")
	trouble.deafen(false)
	s.untilProbed(s.options.Listen+"/readyz", http.StatusOK, "")
	s.until("installed", isAt("1.0.0"))
	trouble.deafen(true)
	s.untilProbed(s.options.Listen+"/readyz", http.StatusInternalServerError, "[-]watches failed")
	s.untilProbed(s.options.Listen+"/healthz", http.StatusInternalServerError, "[-]watches failed")
	trouble.deafen(false)
	s.untilProbed(s.options.Listen+"/healthz", http.StatusOK, "")
	s.untilProbed(s.options.Listen+"/readyz", http.StatusOK, "")
}

// TestAnOperatorWaitsForTheAPIServer: one that ended would be started again by the kubelet after longer and longer
// pauses. It is alive and not ready while nothing answers at all, and when the server fails to do its work at first.
func TestAnOperatorWaitsForTheAPIServer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.options.Listen = "127.83.2.4:8080"
	s.prepare("1.0.0", shop)
	var isUp atomic.Bool
	var definitions, leases atomic.Int32
	s.run(sandboxtest.Tap(s.sandbox.Config, func(r *http.Request, send http.RoundTripper) (*http.Response, error) {
		isDefinition := r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/customresourcedefinitions")
		switch {
		case !isUp.Load():
			return nil, errors.New("the test gives no answer")
		case isDefinition && definitions.Add(1) <= 2, strings.Contains(r.URL.Path, "/leases/") && leases.Add(1) <= 2:
			text := `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError", "message": "not now", "code": 500}`
			return &http.Response{
				StatusCode: http.StatusInternalServerError, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(text)), Request: r,
			}, nil
		default:
			return send.RoundTrip(r)
		}
	}), s.options)
	s.untilProbed(s.options.Listen+"/healthz", http.StatusOK, "")
	s.untilProbed(s.options.Listen+"/readyz", http.StatusInternalServerError, "[-]watches failed")
	isUp.Store(true)
	s.until("installed", isAt("1.0.0"))
	s.untilProbed(s.options.Listen+"/readyz", http.StatusOK, "")
	if definitions.Load() <= 2 || leases.Load() <= 2 {
		t.Errorf("got %d requests for definitions and %d for the lock, want more than 2 each", definitions.Load(),
			leases.Load())
	}
}

// TestWaitingReplicaIsReady: an update of the operator's Deployment waits until the new replica is ready to take over.
func TestWaitingReplicaIsReady(t *testing.T) {
	t.Parallel()
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	standby := s.options
	standby.Name, standby.Listen = "standby", "127.83.2.3:8080"
	s.run(s.sandbox.Config, standby)
	s.untilProbed(standby.Listen+"/readyz", http.StatusOK, "")
	s.untilProbed(standby.Listen+"/healthz", http.StatusOK, "")
}
