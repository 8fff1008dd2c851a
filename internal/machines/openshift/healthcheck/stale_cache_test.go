package healthcheck_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/openshift/healthcheck"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestCacheThatIsBehind: the cache has a machine that needs remediation. On the API server it is healthy again, or an orphan, which no
// controller would replace.
func TestCacheThatIsBehind(t *testing.T) {
	connected := stage.Connect(t)
	sandboxtest.Apply(t, connected, definition("Cycle", "cycles"))
	sandboxtest.Apply(t, connected, definition("CycleTemplate", "cycletemplates"))
	heal := func(t *testing.T, m *machinev1beta1.Machine) {
		setBroken(t, m.Status.NodeRef.Name, corev1.ConditionFalse)
	}
	for name, test := range map[string]struct {
		behind   string // the resource whose cache is behind
		template *corev1.ObjectReference
		change   func(*testing.T, *machinev1beta1.Machine)
	}{
		"healthy again":                     {behind: "/nodes", change: heal},
		"healthy again, another remediates": {behind: "/nodes", change: heal, template: templateRef("CycleTemplate")},
		"orphaned": {behind: "/machines", change: func(t *testing.T, m *machinev1beta1.Machine) {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"ownerReferences":null}}`))
			must(t, stage.Client(t).Patch(t.Context(), m, patch))
		}},
	} {
		t.Run(name, func(t *testing.T) { expectLeftAlone(t, test.behind, test.template, test.change) })
	}
}

func expectLeftAlone(t *testing.T, behind string, template *corev1.ObjectReference, change func(*testing.T, *machinev1beta1.Machine)) {
	t.Helper()
	namespace, c := stage.Namespace(t), stage.Client(t)
	addTemplate(t, namespace, "CycleTemplate")
	owner := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	must(t, c.Create(t.Context(), owner))
	m := newMachine(t, namespace, "web-0", owner)
	none := intstr.FromInt32(0)
	check := &machinev1beta1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: machinev1beta1.MachineHealthCheckSpec{
			MaxUnhealthy: &none, RemediationTemplate: template,
			UnhealthyConditions: []machinev1beta1.UnhealthyCondition{
				{Type: "Broken", Status: corev1.ConditionTrue, Timeout: metav1.Duration{Duration: time.Second}},
			},
		},
	}
	must(t, c.Create(t.Context(), check))
	gate := newWatchGate(behind)
	stage.ManageIn(t, namespace, gate.tap(stage.Sandbox(t).Config), func(mgr ctrl.Manager) error {
		return new(healthcheck.MachineHealthCheckReconciler).SetupWithManager(t.Context(), mgr)
	})
	t.Cleanup(func() { gate.set(false) }) // before the controller is stopped
	await := func(isWanted func(machinev1beta1.MachineHealthCheckStatus) bool) {
		t.Helper()
		machinetest.Await(t, c, check, client.ObjectKeyFromObject(check), func(check *machinev1beta1.MachineHealthCheck) bool {
			return check.Status.CurrentHealthy != nil && isWanted(check.Status)
		})
	}
	setBroken(t, namespace+"-web-0", corev1.ConditionTrue)
	await(func(s machinev1beta1.MachineHealthCheckStatus) bool { return *s.CurrentHealthy == 0 })

	gate.set(true)
	change(t, m)
	must(t, c.Patch(t.Context(), check, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"maxUnhealthy":1}}`))))
	await(func(s machinev1beta1.MachineHealthCheckStatus) bool { // so that it may be deleted, as far as the cache knows
		return *s.CurrentHealthy == 0 && s.Conditions[0].Status == corev1.ConditionTrue
	})
	gate.set(false)
	setBroken(t, m.Status.NodeRef.Name, corev1.ConditionFalse)
	await(func(s machinev1beta1.MachineHealthCheckStatus) bool { return *s.CurrentHealthy == *s.ExpectedMachines })
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(m), m))
	if gate.asked.Load() > 0 {
		t.Error("another controller was asked to remediate a healthy machine")
	}
}

// A watchGate holds back what watches of a resource tell, while it is closed.
type watchGate struct {
	resource string       // the end of its path
	asked    atomic.Int32 // how often a Cycle was made

	mu       sync.Mutex
	changed  *sync.Cond
	isClosed bool
}

func newWatchGate(resource string) *watchGate {
	g := &watchGate{resource: resource}
	g.changed = sync.NewCond(&g.mu)
	return g
}

func (g *watchGate) set(isClosed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isClosed = isClosed
	g.changed.Broadcast()
}

// tap returns a connection by which the resource is watched through the gate.
func (g *watchGate) tap(config *rest.Config) *rest.Config {
	return sandboxtest.Tap(config, func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
		if request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/cycles") {
			g.asked.Add(1)
		}
		response, err := send.RoundTrip(request)
		if err == nil && strings.HasSuffix(request.URL.Path, g.resource) && request.URL.Query().Get("watch") != "" {
			response.Body = gatedWatch{response.Body, g}
		}
		return response, err
	})
}

// A gatedWatch is the body of the answer to a watch.
type gatedWatch struct {
	io.ReadCloser
	gate *watchGate
}

func (w gatedWatch) Read(into []byte) (int, error) {
	count, err := w.ReadCloser.Read(into)
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	for w.gate.isClosed && err == nil {
		w.gate.changed.Wait()
	}
	return count, err
}
