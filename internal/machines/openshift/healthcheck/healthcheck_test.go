package healthcheck_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/openshift/healthcheck"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var stage = machinetest.New(sandbox.Options{NodeGrace: 15 * time.Second})

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }

// While more machines are unhealthy than maxUnhealthy allows, none is deleted; when one heals, the others are.
func TestStorm(t *testing.T) {
	t.Parallel()
	namespace, c := stage.Namespace(t), stage.Client(t)
	owner := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	must(t, c.Create(t.Context(), owner))
	for i := range 6 {
		newMachine(t, namespace, fmt.Sprintf("web-%d", i), owner)
	}
	for i := range 3 {
		setBroken(t, fmt.Sprintf("%s-web-%d", namespace, i), corev1.ConditionTrue)
	}
	limit := intstr.FromInt32(2)
	check := &machinev1beta1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: machinev1beta1.MachineHealthCheckSpec{
			MaxUnhealthy: &limit,
			UnhealthyConditions: []machinev1beta1.UnhealthyCondition{
				{Type: "Broken", Status: corev1.ConditionTrue, Timeout: metav1.Duration{Duration: time.Second}},
			},
		},
	}
	must(t, c.Create(t.Context(), check))
	stage.Manage(t, namespace, func(mgr ctrl.Manager) error {
		return new(healthcheck.MachineHealthCheckReconciler).SetupWithManager(t.Context(), mgr)
	})
	machinetest.Await(t, c, check, client.ObjectKeyFromObject(check), func(check *machinev1beta1.MachineHealthCheck) bool {
		all := check.Status.Conditions
		return len(all) == 1 && all[0].Reason == machinev1beta1.TooManyUnhealthyReason && *check.Status.CurrentHealthy == 3
	})

	setBroken(t, namespace+"-web-0", corev1.ConditionFalse)
	for _, name := range []string{"web-1", "web-2"} {
		machinetest.AwaitGone(t, c, &machinev1beta1.Machine{}, client.ObjectKey{Namespace: namespace, Name: name})
	}
	machinetest.Await(t, c, check, client.ObjectKeyFromObject(check), func(check *machinev1beta1.MachineHealthCheck) bool {
		return *check.Status.ExpectedMachines == 4 && *check.Status.CurrentHealthy == 4 && check.Status.RemediationsAllowed == 2
	})
}

// The node of a machine is gone, and its host joined again as the node of another machine: only that one is healthy.
func TestNodeOfAnotherMachine(t *testing.T) {
	t.Parallel()
	namespace, c := stage.Namespace(t), stage.Client(t)
	owner := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	must(t, c.Create(t.Context(), owner))
	m := newMachine(t, namespace, "web-0", owner)
	other := newMachine(t, namespace, "web-1", owner)
	setNodeRef := func(m *machinev1beta1.Machine, ref string) {
		must(t, c.Status().Patch(t.Context(), m, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"nodeRef":`+ref+`}}`))))
	}
	node := m.Status.NodeRef
	setNodeRef(other, fmt.Sprintf(`{"name":%q,"uid":%q}`, node.Name, node.UID))
	check := &machinev1beta1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: machinev1beta1.MachineHealthCheckSpec{UnhealthyConditions: []machinev1beta1.UnhealthyCondition{
			{Type: "Broken", Status: corev1.ConditionTrue, Timeout: metav1.Duration{Duration: time.Second}},
		}},
	}
	must(t, c.Create(t.Context(), check))
	stage.Manage(t, namespace, func(mgr ctrl.Manager) error {
		return new(healthcheck.MachineHealthCheckReconciler).SetupWithManager(t.Context(), mgr)
	})
	awaitHealthy := func(want int) {
		t.Helper()
		machinetest.Await(t, c, check, client.ObjectKeyFromObject(check), func(check *machinev1beta1.MachineHealthCheck) bool {
			return check.Status.CurrentHealthy != nil && *check.Status.CurrentHealthy == want && *check.Status.ExpectedMachines == want
		})
	}
	setNodeRef(m, `{"uid":"before"}`)
	awaitHealthy(2) // no annotation says yet whose the node is
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"machine.openshift.io/machine":"`+namespace+`/web-1"}}}`))
	must(t, c.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}, patch))
	machinetest.AwaitGone(t, c, m, client.ObjectKeyFromObject(m))
	awaitHealthy(1)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newMachine makes a Machine with a node.
func newMachine(t *testing.T, namespace, name string, owner *machinev1beta1.MachineSet, edits ...func(*machinev1beta1.Machine)) *machinev1beta1.Machine {
	t.Helper()
	c, node := stage.Client(t), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name}}
	must(t, c.Create(t.Context(), node))
	isController := true
	machine := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: machinev1beta1.GroupVersion.String(), Kind: "MachineSet", Name: owner.Name, UID: owner.UID, Controller: &isController,
		}},
	}}
	for _, edit := range edits {
		edit(machine)
	}
	must(t, c.Create(t.Context(), machine))
	before := machine.DeepCopy()
	machine.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: node.Name, UID: node.UID}
	must(t, c.Status().Patch(t.Context(), machine, client.MergeFrom(before)))
	return machine
}

func setBroken(t *testing.T, node string, status corev1.ConditionStatus) {
	t.Helper()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	object.Status.Conditions = []corev1.NodeCondition{{
		Type: "Broken", Status: status, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute)),
	}}
	patch := client.StrategicMergeFrom(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	must(t, stage.Client(t).Status().Patch(t.Context(), object, patch))
}
