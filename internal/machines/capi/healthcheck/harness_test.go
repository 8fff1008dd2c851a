package healthcheck_test

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/healthcheck"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var stage = machinetest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }

// A fixture is the namespace of one test, with a Cluster.
type fixture struct{ *machinetest.Fixture }

func newFixture(t testing.TB) *fixture {
	w := &fixture{stage.NewFixture(t)}
	w.MustCreate(w.NewCluster())
	return w
}

// manage runs the controller, which sees this namespace only, until the test ends or stop is called.
func (f *fixture) manage() (stop func()) {
	f.Helper()
	return stage.ManageIn(f, f.Namespace, stage.Sandbox(f).Config, func(m ctrl.Manager) error {
		return healthcheck.SetupWithManager(f.Context(), m)
	})
}

// newCheck returns a health check of machines whose node has been broken for a second.
func (f *fixture) newCheck() *clusterv1.MachineHealthCheck {
	check := &clusterv1.MachineHealthCheck{ObjectMeta: f.Meta("web")}
	check.Spec.ClusterName = "c"
	check.Spec.Selector.MatchLabels = map[string]string{"role": "web"}
	check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
		{Type: "Broken", Status: corev1.ConditionTrue, TimeoutSeconds: ptr.To[int32](1)},
	}
	return check
}

// addMachine creates a Machine with a Node, and labels that the health check selects.
func (f *fixture) addMachine(name string) *clusterv1.Machine {
	f.Helper()
	f.AddNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.nodeOf(name)}})
	m := f.addMachineWithoutNode(name)
	f.MustPatchStatus(m, `{"status":{"nodeRef":{"name":%q}}}`, f.nodeOf(name))
	return m
}

func (f *fixture) addMachineWithoutNode(name string) *clusterv1.Machine {
	f.Helper()
	m := &clusterv1.Machine{ObjectMeta: f.Meta(name), Spec: machinetest.MachineSpec()}
	m.Labels = map[string]string{"role": "web"}
	m.Spec.InfrastructureRef.Kind, m.Spec.InfrastructureRef.Name = "KwokMachine", name
	m.Spec.Bootstrap = clusterv1.Bootstrap{DataSecretName: ptr.To("data")}
	f.MustCreate(m)
	return m
}

func (f *fixture) nodeOf(machine string) string { return f.Namespace + "-" + machine }

// setBroken sets the condition Broken of a Node, since a minute.
func (f *fixture) setBroken(node string, status corev1.ConditionStatus) {
	f.Helper()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	object.Status.Conditions = []corev1.NodeCondition{{
		Type: "Broken", Status: status, Reason: "Tested",
		LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute)),
	}}
	f.Must(f.Status().Patch(f.Context(), object,
		client.StrategicMergeFrom(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})))
}

// awaitCheck waits until the status of a health check is as wanted for its newest generation.
func (f *fixture) awaitCheck(check *clusterv1.MachineHealthCheck,
	isWanted func(clusterv1.MachineHealthCheckStatus) bool) *clusterv1.MachineHealthCheck {
	f.Helper()
	return machinetest.Await(f, f, &clusterv1.MachineHealthCheck{}, client.ObjectKeyFromObject(check),
		func(check *clusterv1.MachineHealthCheck) bool {
			return check.Status.ObservedGeneration == check.Generation && isWanted(check.Status)
		})
}

// awaitHealthy waits until so many of so many machines are healthy.
func (f *fixture) awaitHealthy(check *clusterv1.MachineHealthCheck, healthy, all int32) {
	f.Helper()
	f.awaitCheck(check, func(s clusterv1.MachineHealthCheckStatus) bool {
		return ptr.Deref(s.CurrentHealthy, -1) == healthy && ptr.Deref(s.ExpectedMachines, -1) == all
	})
}

// awaitCondition waits until a condition of a machine has a reason, and returns it.
func (f *fixture) awaitCondition(machine, kind, reason string) metav1.Condition {
	f.Helper()
	m := machinetest.Await(f, f, &clusterv1.Machine{}, f.Key(machine), func(m *clusterv1.Machine) bool {
		return conditionOf(m, kind).Reason == reason
	})
	return conditionOf(m, kind)
}

func conditionOf(m *clusterv1.Machine, kind string) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(m.Status.Conditions, kind), metav1.Condition{})
}

// condition returns the current condition of a machine.
func (f *fixture) condition(machine, kind string) metav1.Condition {
	f.Helper()
	m := &clusterv1.Machine{ObjectMeta: f.Meta(machine)}
	f.MustGet(m)
	return conditionOf(m, kind)
}
