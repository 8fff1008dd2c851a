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
	"github.com/runlevel/runlevel/pkg/apply"
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
		_, isLimited := request.Context().Deadline()
		if strings.HasSuffix(request.URL.Path, "/poddisruptionbudgets") && !isLimited {
			t.Error("the gate of a preflight runs without a deadline")
		}
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
	m, checked := newStateMachine(c, Options{CacheDir: t.TempDir()}),
		&target{Release: configv1.Release{Image: t.TempDir()}}
	requested := &target{Release: configv1.Release{Image: "shop@sha256:0"}, Preflight: checked}
	isKept := cacheImages(t, m.releases, "shop@sha256:0", "shop@sha256:1", "shop@sha256:2", "shop@sha256:3")
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
	if !isKept() {
		t.Error("preflights of other images evict the current release from the cache")
	}
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
	late, cancel := context.WithTimeoutCause(t.Context(), 0, apply.ErrTimeout)
	defer cancel()
	got := m.runPreflight(late, requested, false, &backoff)
	if err := m.preflight.Err; got != 5*time.Minute || !errors.Is(err, apply.ErrTimeout) {
		t.Errorf("a preflight that has taken too long is repeated after %s: %v", got, err)
	}

	expectSettling(t, m)
}

// expectSettling checks that a preflight that replaces another one begins after a pause.
func expectSettling(t *testing.T, m *stateMachine) {
	t.Helper()
	request := func() (requested time.Time) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.input.target = &target{Release: m.current.release.target.Release,
			Preflight: &target{Release: configv1.Release{Image: "/none"}}}
		m.preflight = &clusterversion.Preflight{}
		select {
		case m.inputChanged <- struct{}{}:
		default:
		}
		return time.Now()
	}
	awaitFailure := func() {
		for {
			m.mu.Lock()
			hasFailed := m.preflight.Err != nil
			m.mu.Unlock()
			if hasFailed {
				return
			}
			<-m.outputChanged
		}
	}
	request()
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.acceptTargets(ctx) }()
	awaitFailure()
	requested := request()
	awaitFailure()
	if took := time.Since(requested); took < 2*time.Second {
		t.Errorf("a preflight that replaces another one has begun %s after the edit", took)
	}
	end()
	<-ended
}

// cacheImages creates images in the cache, the oldest first, and returns a function that reports whether the first one
// is still there after the cache is pruned.
func cacheImages(t *testing.T, r *releases, images ...string) (isKept func() bool) {
	t.Helper()
	for i, image := range images {
		used := time.Now().Add(time.Duration(i-10) * time.Minute)
		if err := errors.Join(os.Mkdir(r.cached(image), 0o700), os.Chtimes(r.cached(image), used, used)); err != nil {
			t.Fatal(err)
		}
	}
	return func() bool {
		pruned := r.prune()
		_, err := os.Stat(r.cached(images[0]))
		return pruned == nil && err == nil
	}
}
