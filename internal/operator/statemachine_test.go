package operator

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestNothingIsAcceptedWithoutTheLock: the replica that has the lock now may have another target.
func TestNothingIsAcceptedWithoutTheLock(t *testing.T) {
	t.Parallel()
	s := sandboxtest.Start(t, sandbox.Options{})
	c, err := cluster.Connect(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	current, err := session.Hold(t.Context(), c, payload.DefaultName, "", lock.Options{Duration: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = current.Release(nil) })
	if err := c.Client.CoordinationV1().Leases(session.DefaultNamespace).Delete(t.Context(),
		lock.Name(payload.DefaultName), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	<-current.Held().Done()
	m := newStateMachine(c, Options{})
	m.session = current
	wanted := &target{Release: configv1.Release{Image: "127.0.0.1:1/shop@sha256:" + strings.Repeat("1", 64)}}
	if err := m.accept(t.Context(), wanted, wanted, false); !errors.Is(err, lock.ErrLost) {
		t.Errorf("accept returned %v, want %v", err, lock.ErrLost)
	}
	if got := m.acceptance; got.Phase != "" {
		t.Errorf("acceptance is %+v, want no phase", got)
	}
}

// TestAnOutageKeepsTheResultOfAPreflight, and so does a preflight that is outdated. Another failure replaces the
// result.
func TestAnOutageKeepsTheResultOfAPreflight(t *testing.T) {
	checked := &target{Release: configv1.Release{Version: "1.1.0"}}
	m := &stateMachine{
		outputChanged: make(chan event.GenericEvent, 1),
		input:         machineInput{target: &target{Preflight: checked}},
		preflight:     &clusterversion.Preflight{Effects: &clusterversion.Effects{Changed: 3}},
	}
	publish := func(t *target, err error) {
		c := candidate{machine: m, targetRelease: targetRelease{target: t}, isPreflight: true}
		c.acceptance.Err = err
		c.publish(context.Background())
	}
	publish(checked, apierrors.NewServerTimeout(schema.GroupResource{}, "patch", 1))
	publish(&target{}, errors.New("outdated"))
	if m.preflight.Effects == nil {
		t.Error("the result is lost")
	}
	publish(checked, errors.New("no such image"))
	if m.preflight.Effects != nil || m.preflight.Err == nil {
		t.Errorf("the failure is not shown: %+v", m.preflight)
	}
}

// TestPacesOfAPreflight: a preflight with a result is repeated after minutes, and one without a result like a refused
// release. An outage before the first dry run is not a result.
func TestPacesOfAPreflight(t *testing.T) {
	t.Parallel()
	var isAway atomic.Bool
	send := func(request *http.Request, next http.RoundTripper) (*http.Response, error) {
		if isAway.Load() && strings.HasSuffix(request.URL.Path, "/namespaces/later") {
			return nil, syscall.ECONNREFUSED
		}
		return next.RoundTrip(request)
	}
	c, err := cluster.Connect(sandboxtest.Tap(sandboxtest.Start(t, sandbox.Options{}).Config, send))
	if err != nil {
		t.Fatal(err)
	}
	held, err := session.Hold(t.Context(), c, payload.DefaultName, "", lock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Release(nil) })
	m, checked := newStateMachine(c, Options{}), &target{Release: configv1.Release{Image: t.TempDir()}}
	requested := &target{Preflight: checked}
	m.session, m.input.target = held, requested
	m.current = &currentRelease{release: targetRelease{target: requested, payload: &payload.Payload{}}}
	backoff := retryAcceptance
	pace := func(want time.Duration) {
		t.Helper()
		if got := m.runPreflight(t.Context(), requested, false, &backoff); got != want {
			t.Errorf("the preflight is repeated after %s, want %s: %v", got, want, m.preflight.Err)
		}
	}
	pace(2 * time.Second)
	pace(4 * time.Second)
	write := func(file, manifest string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(checked.Image, file), []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("0000_10_a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: default}}")
	pace(5 * time.Minute)
	if got := m.preflight.Effects; got == nil || got.Created != 1 {
		t.Errorf("the effects of the update are %+v", got)
	}
	// the ConfigMap is applied before its Namespace, unless the cluster lacks the Namespace
	write("0000_10_b_10_early.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: early, namespace: later}}")
	write("0000_10_b_20_later.yaml", "{apiVersion: v1, kind: Namespace, metadata: {name: later}}")
	isAway.Store(true)
	pace(2 * time.Second)
	if got := m.preflight; got.Err == nil || got.Effects != nil {
		t.Errorf("an outage before the first dry run has the result %+v", got)
	}
	checked.Image = "/none"
	pace(4 * time.Second)
}
