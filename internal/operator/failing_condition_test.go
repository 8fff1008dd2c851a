package operator_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

const refused = `
-- 0000_50_shop_50_refused.yaml --
{apiVersion: v1, kind: Service, metadata: {name: refused, namespace: shop}, spec: {ports: [{port: 0}]}}
`

// TestConditionsStayWhileARefusedObjectIsTriedAgain: alerts depend on how long Failing has been true. The next try is
// blocked after it has applied the objects before the refused one.
func TestConditionsStayWhileARefusedObjectIsTriedAgain(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newStage(t)
	s.prepare("1.0.0", shop+refused)
	var mu sync.Mutex
	var isHeld bool
	arrived, release := make(chan struct{}), make(chan struct{})
	arrive := sync.OnceFunc(func() { close(arrived) })
	s.run(sandboxtest.Before(s.sandbox.Config, func(r *http.Request) error {
		mu.Lock()
		hold := isHeld && r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/services/refused")
		mu.Unlock()
		if hold {
			arrive()
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		return nil
	}), s.options)
	t.Cleanup(func() { close(release) }) // before the operator ends
	failing := func(v *configv1.ClusterVersion) bool {
		return strings.HasPrefix(find(v, "Failing").Message, "Service shop/refused: ")
	}
	before := s.until("the object is refused", failing)
	mu.Lock()
	isHeld = true
	mu.Unlock()
	select {
	case <-arrived:
	case <-t.Context().Done():
	}
	for _, channel := range []string{"stable-1", "stable-2"} {
		v := s.version()
		s.must(s.client.Patch(t.Context(), v,
			client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"channel": "`+channel+`"}}`))))
		after := s.until("the status is written again", func(now *configv1.ClusterVersion) bool {
			return now.Status.ObservedGeneration >= v.Generation
		})
		for _, kind := range []configv1.ClusterStatusConditionType{"Failing", configv1.OperatorProgressing} {
			if got, want := find(after, kind), find(before, kind); got != want {
				t.Errorf("%s is %+v, want %+v as before", kind, got, want)
			}
		}
	}
}
