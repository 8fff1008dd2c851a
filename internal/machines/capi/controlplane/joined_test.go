package controlplane_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestMachineThatJoinsWhileItsReplacementIsTried lets an outdated machine join after the control plane has read it, and
// before it deletes it as a machine that never joined: admission of the replacement is slow. The machine must stay.
func TestMachineThatJoinsWhileItsReplacementIsTried(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 1, 1)
	tried, hasJoined := make(chan struct{}), make(chan struct{})
	resume, isTried := sync.OnceFunc(func() { close(hasJoined) }), sync.OnceFunc(func() { close(tried) })
	p.runMachines()
	p.runPlane(sandboxtest.Before(stage.Sandbox(t).Config, func(r *http.Request) error {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/kwokmachines") &&
			r.URL.Query().Has("dryRun") {
			isTried()
			<-hasJoined
		}
		return nil
	}))
	t.Cleanup(resume) // before the controller is stopped
	p.awaitSettled(1)
	first := p.names()[0]
	slow := p.infrastructure("small")
	slow.Spec.Template.Spec.StartAfter = metav1.Duration{Duration: time.Hour}
	p.MustDelete(p.infrastructure("small"))
	p.MustCreate(slow)
	p.MustPatch(p.plane, `{"spec":{"replicas":3}}`)
	p.Eventually("a second machine", func() bool { return len(p.names()) == 2 })
	second := p.machines()
	delete(second, first)
	for name := range second {
		p.upgrade("v1.36.1")
		<-tried
		p.MustPatch(&infrav1.KwokMachine{ObjectMeta: p.Meta(name)}, `{"spec":{"startAfter":null}}`)
		machinetest.Await(p, p, &clusterv1.Machine{}, p.Key(name), func(m *clusterv1.Machine) bool {
			return m.Status.NodeRef.IsDefined()
		})
		resume()
		p.Eventually("another machine", func() bool {
			return slices.ContainsFunc(p.names(), func(other string) bool { return other != first && other != name })
		})
		if m := p.machines()[name]; m == nil || m.DeletionTimestamp != nil {
			t.Errorf("machine %s was deleted as one that has never joined", name)
		}
	}
}
