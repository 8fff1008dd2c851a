package manager_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/program/leader"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestProbes starts the controller without an API server. Then the API server refuses all requests, as it does until it
// has read its roles; then the controller leads while a kind can't be listed; in the end all requests succeed. The
// controller writes only its Lease.
func TestProbes(t *testing.T) {
	t.Parallel()
	var hasBegun, isUp, isListed atomic.Bool
	var refused atomic.Int32
	config := sandboxtest.Tap(deployed.Sandbox(t).Config,
		func(r *http.Request, send http.RoundTripper) (*http.Response, error) {
			if hasBegun.Load() && !isUp.Load() {
				refused.Add(1)
				return forbidden(r), nil
			}
			isWrite := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases")
			if !isUp.Load() || isWrite || strings.Contains(r.URL.Path, "/machinesets") && !isListed.Load() {
				return nil, errors.New("the test gives no answer")
			}
			return send.RoundTrip(r)
		})
	o := manager.Options{Options: leader.Options{
		Namespace: deployed.Namespace(t),
		Name:      "probed",
		Listen:    "127.83.3.1:8080",
	}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Run(ctx, config, o) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the controller ended: %v", err)
		}
	})
	awaitProbe(t, o.Listen+"/healthz", "ok")
	awaitProbe(t, o.Listen+"/readyz", "[-]caches failed")

	hasBegun.Store(true)
	err := wait.PollUntilContextTimeout(t.Context(), time.Second/20, patience, true,
		func(context.Context) (bool, error) {
			return refused.Load() >= 6, nil
		})
	if err != nil {
		t.Fatalf("the controller does not go on asking: %d requests", refused.Load())
	}
	awaitProbe(t, o.Listen+"/healthz", "ok")
	awaitProbe(t, o.Listen+"/readyz", "[-]caches failed")

	isUp.Store(true)
	key := client.ObjectKey{Namespace: o.Namespace, Name: "machine-controller"}
	machinetest.Await(t, deployed.Client(t), &coordinationv1.Lease{}, key, func(l *coordinationv1.Lease) bool {
		return strings.HasPrefix(ptr.Deref(l.Spec.HolderIdentity, ""), "probed")
	})
	awaitProbe(t, o.Listen+"/readyz", "[-]caches failed")
	awaitProbe(t, o.Listen+"/healthz/election", "ok")
	isListed.Store(true)
	awaitProbe(t, o.Listen+"/readyz", "ok")
}

// forbidden is the response of an API server that has not read its roles yet.
func forbidden(r *http.Request) *http.Response {
	text := `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}`
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(text)), Request: r,
	}
}

// awaitProbe waits until a probe gives an answer.
func awaitProbe(t *testing.T, path, want string) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(t.Context(), time.Second/20, patience, true,
		func(ctx context.Context) (bool, error) {
			last = probe(ctx, path)
			return strings.HasPrefix(last, want), nil
		})
	if err != nil {
		t.Fatalf("%s returned %q, want %q", path, last, want)
	}
}

func probe(ctx context.Context, path string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+path, nil)
	if err != nil {
		return err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if isOK := strings.HasPrefix(string(text), "ok"); err != nil || isOK != (response.StatusCode == http.StatusOK) {
		return fmt.Sprintf("%s with %s: %v", text, response.Status, err)
	}
	return string(text)
}
