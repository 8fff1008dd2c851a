package rehearse_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/rehearse"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var update = flag.Bool("update", false, "write what rehearsals find")

// small is a release that needs a moment.
var small = fstest.MapFS{"0000_10_shop_01_config.yaml": {
	Data: []byte(`{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}}`),
}}

// running returns the state of a sandbox; nil if there is none.
func running(t *testing.T, name string) *sandbox.Status {
	t.Helper()
	all, err := sandbox.List()
	if err != nil {
		t.Fatal(err)
	}
	index := slices.IndexFunc(all, func(s sandbox.Status) bool { return s.Name == name && s.Failure == "" })
	if index < 0 {
		return nil
	}
	return &all[index]
}

// TestInterruptedRehearsal expects that an interrupted rehearsal leaves no control plane.
func TestInterruptedRehearsal(t *testing.T) {
	sandboxtest.NeedControlPlane(t)
	ctx, interrupt := context.WithCancelCause(t.Context())
	ctrlC := errors.New("interrupted")
	report, err := rehearse.Run(ctx, rehearse.Options{
		New: parse(t, small, "1.0.0"), Sandbox: sandbox.Options{Name: "rehearse-interrupted"}, Progress: func(string) {
			interrupt(ctrlC)
		},
	})
	if report != nil || !errors.Is(err, ctrlC) {
		t.Errorf("got report %v, error %v", report, err)
	}
	if remaining := running(t, "rehearse-interrupted"); remaining != nil {
		t.Errorf("got remaining objects %+v", remaining)
	}
}

// TestControlPlaneEnds expects that the end of the API server is reported as the error, without findings.
func TestControlPlaneEnds(t *testing.T) {
	sandboxtest.NeedControlPlane(t)
	report, err := rehearse.Run(t.Context(), rehearse.Options{
		New: parse(t, small, "1.0.0"), Sandbox: sandbox.Options{Name: "rehearse-ends"}, Progress: func(string) {
			for _, component := range running(t, "rehearse-ends").Components {
				if component.Name == sandbox.APIServer && component.PID > 0 {
					_ = syscall.Kill(component.PID, syscall.SIGKILL)
				}
			}
		},
	})
	if report != nil || err == nil || !strings.Contains(err.Error(), "the control plane of the rehearsal has ended") {
		t.Errorf("got report %v, error %v", report, err)
	}
}

// never is a release whose pods are too large for any node.
var never = fstest.MapFS{"0000_10_shop_01_web.yaml": {Data: []byte(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example/web:1, resources: {requests: {cpu: "1000"}}}]}
`)}}

// TestLockThatCannotBeRenewed asserts that a slow machine, which can't renew the lock in time, finishes the rehearsal.
func TestLockThatCannotBeRenewed(t *testing.T) {
	t.Parallel()
	// of renewals, which have no field manager: after 20 s, a lock of half a minute was lost
	const outage = 22 * time.Second
	began := time.Now()
	config := start(t, func(request *http.Request) bool {
		return strings.Contains(request.URL.Path, "/leases/") && request.Method == http.MethodPut &&
			request.URL.RawQuery == "" && time.Since(began) < outage
	})
	began = time.Now()
	report, err := rehearse.On(t.Context(), config,
		rehearse.Options{New: parse(t, never, "1.0.0"), Patience: outage + 3*time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, seen := range report.Observations {
		if seen.Rule == lint.RehearsalNotReady || seen.Rule == lint.RehearsalRefused ||
			seen.Rule == lint.RehearsalAgain {
			found = append(found, seen.Message)
		}
	}
	if len(found) != 1 || !strings.Contains(found[0], "Insufficient cpu") {
		t.Errorf("got problems %q, want only that the pods have no node", found)
	}
}

// TestControlPlaneWithoutAnswers ends a rehearsal: nothing that follows from it is a finding.
func TestControlPlaneWithoutAnswers(t *testing.T) {
	t.Parallel()
	config := start(t, func(request *http.Request) bool {
		return strings.HasSuffix(request.URL.Path, "/configmaps/settings") && request.Method == http.MethodPatch
	})
	report, err := rehearse.On(t.Context(), config,
		rehearse.Options{New: parse(t, small, "1.0.0"), Patience: 2 * time.Second})
	if report != nil || err == nil ||
		!strings.HasPrefix(err.Error(), "the rehearsal could not be finished: install 1.0.0: ") {
		t.Errorf("got report %v, error %v", report, err)
	}
}

// start starts a control plane, and returns a connection that refuses some requests.
func start(t *testing.T, isRefused func(*http.Request) bool) *rest.Config {
	t.Helper()
	s := sandboxtest.Start(t, sandbox.Options{})
	return sandboxtest.Before(s.Config, func(request *http.Request) error {
		if isRefused(request) {
			return &url.Error{Op: request.Method, URL: request.URL.String(), Err: syscall.ECONNREFUSED}
		}
		return nil
	})
}

// web is a release with an object that the small one has, and a Deployment.
var web = fstest.MapFS{
	"0000_10_shop_01_config.yaml": {Data: []byte(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop, annotations: {release.openshift.io/delete: "true"}}
`)},
	"0000_20_shop_01_web.yaml": {Data: bytes.Replace(never["0000_10_shop_01_web.yaml"].Data,
		[]byte(`, resources: {requests: {cpu: "1000"}}`), nil, 1)},
}

// TestEarlierVersionsOfKubernetes rehearses an update on each version that the control plane emulates.
func TestEarlierVersionsOfKubernetes(t *testing.T) {
	sandboxtest.NeedControlPlane(t)
	for _, version := range []string{"1.34", "1.35", "1.36"} {
		t.Run(version, func(t *testing.T) {
			report, err := rehearse.Run(t.Context(), rehearse.Options{
				Old: parse(t, small, "1.0.0"), New: parse(t, web, "1.1.0"),
				Sandbox: sandbox.Options{Kubernetes: version}, Progress: func(string) {},
			})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(report.Kubernetes, "behaves as "+version) {
				t.Errorf("got version %q, want %q", report.Kubernetes, version)
			}
			for _, seen := range report.Observations {
				if seen.Rule != lint.RehearsalMade { // the release has no Namespace
					t.Errorf("%s: %s: %s", seen.Rule, seen.Object, seen.Message)
				}
			}
		})
	}
}
