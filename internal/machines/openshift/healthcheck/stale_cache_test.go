package healthcheck_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestCacheThatIsBehind: the cache has a machine that needs remediation. On the API server it is healthy again, or an
// orphan, which no controller would replace.
func TestCacheThatIsBehind(t *testing.T) {
	connected := shared.Connect(t)
	sandboxtest.Apply(t, connected, definition("Cycle", "cycles"))
	sandboxtest.Apply(t, connected, definition("CycleTemplate", "cycletemplates"))
	heal := func(f *machinetest.Fixture, m *machinev1beta1.Machine) {
		setBroken(f, m.Status.NodeRef.Name, corev1.ConditionFalse)
	}
	for name, test := range map[string]struct {
		behind   string // the resource whose cache is behind
		template *corev1.ObjectReference
		change   func(*machinetest.Fixture, *machinev1beta1.Machine)
	}{
		"healthy again":                     {behind: "nodes", change: heal},
		"healthy again, another remediates": {behind: "nodes", change: heal, template: templateRef("CycleTemplate")},
		"orphaned": {behind: "machines", change: func(f *machinetest.Fixture, m *machinev1beta1.Machine) {
			f.MustPatch(m, `{"metadata":{"ownerReferences":null}}`)
		}},
	} {
		t.Run(name, func(t *testing.T) { expectLeftAlone(t, test.behind, test.template, test.change) })
	}
}

func expectLeftAlone(t *testing.T, behind string, template *corev1.ObjectReference,
	change func(*machinetest.Fixture, *machinev1beta1.Machine)) {
	t.Helper()
	f := shared.NewFixture(t)
	addTemplate(f, "CycleTemplate")
	m := addMachine(f, "web-0", addOwner(f))
	none := intstr.FromInt32(0)
	check := newCheck(f)
	check.Spec.MaxUnhealthy, check.Spec.RemediationTemplate = &none, template
	f.MustCreate(check)
	gate, requests := machinetest.NewWatchGate(behind), atomic.Int32{}
	config := sandboxtest.Tap(shared.Sandbox(t).Config,
		func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
			if request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/cycles") {
				requests.Add(1)
			}
			return send.RoundTrip(request)
		})
	manage(f, gate.Config(config))
	t.Cleanup(gate.Open) // before the controller is stopped
	await := func(isWanted func(machinev1beta1.MachineHealthCheckStatus) bool) {
		t.Helper()
		machinetest.Await(f, f, check, client.ObjectKeyFromObject(check),
			func(check *machinev1beta1.MachineHealthCheck) bool {
				return check.Status.CurrentHealthy != nil && isWanted(check.Status)
			})
	}
	setBroken(f, f.Namespace+"-web-0", corev1.ConditionTrue)
	await(func(s machinev1beta1.MachineHealthCheckStatus) bool { return *s.CurrentHealthy == 0 })

	gate.Close()
	change(f, m)
	f.MustPatch(check, `{"spec":{"maxUnhealthy":1}}`)
	await(func(s machinev1beta1.MachineHealthCheckStatus) bool { // so that it may be deleted, as far as the cache knows
		return *s.CurrentHealthy == 0 && s.Conditions[0].Status == corev1.ConditionTrue
	})
	gate.Open()
	setBroken(f, m.Status.NodeRef.Name, corev1.ConditionFalse)
	await(func(s machinev1beta1.MachineHealthCheckStatus) bool { return *s.CurrentHealthy == *s.ExpectedMachines })
	f.MustGet(m)
	if requests.Load() > 0 {
		t.Error("another controller was asked to remediate a healthy machine")
	}
}

// TestMachineThatIsOrphanedBeforeTheDeletion: an unhealthy machine loses its controller after it was read, and before
// it is deleted.
func TestMachineThatIsOrphanedBeforeTheDeletion(t *testing.T) {
	f := shared.NewFixture(t)
	m := addMachine(f, "web-0", addOwner(f))
	config := machinetest.BeforeFirstDelete(shared.Sandbox(t).Config, func(string) {
		f.MustPatch(m, `{"metadata":{"ownerReferences":null}}`)
	})
	manage(f, config)
	f.MustCreate(newCheck(f))
	setBroken(f, m.Status.NodeRef.Name, corev1.ConditionTrue)
	f.Eventually("the machine is skipped or deleted", func() bool {
		return len(f.Events(m.Name, "SkippedNoController"))+len(f.Events(m.Name, "MachineDeleted")) > 0
	})
	f.MustGet(m)
}
