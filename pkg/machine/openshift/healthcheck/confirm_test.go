package healthcheck_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/machine/openshift/healthcheck"
)

// TestCacheThatIsBehind: a node has got well, and the cache does not know it yet when its machine may be deleted.
func TestCacheThatIsBehind(t *testing.T) {
	namespace, c := stage.Namespace(t), stage.Client(t)
	owner := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	must(t, c.Create(t.Context(), owner))
	newMachine(t, namespace, "web-0", owner)
	none := intstr.FromInt32(0)
	check := &machinev1beta1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: machinev1beta1.MachineHealthCheckSpec{
			MaxUnhealthy: &none,
			UnhealthyConditions: []machinev1beta1.UnhealthyCondition{
				{Type: "Broken", Status: corev1.ConditionTrue, Timeout: metav1.Duration{Duration: time.Second}},
			},
		},
	}
	must(t, c.Create(t.Context(), check))
	gate := newNodeGate()
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
	setBroken(t, namespace+"-web-0", corev1.ConditionFalse)
	must(t, c.Patch(t.Context(), check, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"maxUnhealthy":1}}`))))
	await(func(s machinev1beta1.MachineHealthCheckStatus) bool { // so that it may be deleted, as far as the cache knows
		return *s.CurrentHealthy == 0 && s.Conditions[0].Status == corev1.ConditionTrue
	})
	gate.set(false)
	await(func(s machinev1beta1.MachineHealthCheckStatus) bool { return *s.CurrentHealthy == *s.ExpectedMachines })
	machine := &machinev1beta1.Machine{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web-0"}, machine))
}

// A nodeGate holds back what watches of nodes tell, while it is closed.
type nodeGate struct {
	mu       sync.Mutex
	changed  *sync.Cond
	isClosed bool
}

func newNodeGate() *nodeGate {
	g := &nodeGate{}
	g.changed = sync.NewCond(&g.mu)
	return g
}

func (g *nodeGate) set(isClosed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isClosed = isClosed
	g.changed.Broadcast()
}

// tap returns a connection by which nodes are watched through the gate.
func (g *nodeGate) tap(config *rest.Config) *rest.Config {
	return sandboxtest.Tap(config, func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
		response, err := send.RoundTrip(request)
		if err == nil && strings.HasSuffix(request.URL.Path, "/nodes") && request.URL.Query().Get("watch") != "" {
			response.Body = nodeWatch{response.Body, g}
		}
		return response, err
	})
}

// A nodeWatch is the body of the answer to a watch.
type nodeWatch struct {
	io.ReadCloser
	gate *nodeGate
}

func (w nodeWatch) Read(into []byte) (int, error) {
	count, err := w.ReadCloser.Read(into)
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	for w.gate.isClosed && err == nil {
		w.gate.changed.Wait()
	}
	return count, err
}
