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
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/openshift/healthcheck"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var shared = machinetest.New(sandbox.Options{NodeGrace: 15 * time.Second})

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// While more machines are unhealthy than maxUnhealthy allows, none is deleted; when one heals, the others are.
func TestStorm(t *testing.T) {
	t.Parallel()
	f := shared.NewFixture(t)
	owner := addOwner(f)
	for i := range 6 {
		addMachine(f, fmt.Sprintf("web-%d", i), owner)
	}
	for i := range 3 {
		setBroken(f, fmt.Sprintf("%s-web-%d", f.Namespace, i), corev1.ConditionTrue)
	}
	limit := intstr.FromInt32(2)
	check := newCheck(f)
	check.Spec.MaxUnhealthy = &limit
	f.MustCreate(check)
	manage(f, f.Config())
	machinetest.Await(f, f, check, client.ObjectKeyFromObject(check),
		func(check *machinev1beta1.MachineHealthCheck) bool {
			all := check.Status.Conditions
			return len(all) == 1 && all[0].Reason == machinev1beta1.TooManyUnhealthyReason &&
				*check.Status.CurrentHealthy == 3
		})

	setBroken(f, f.Namespace+"-web-0", corev1.ConditionFalse)
	for _, name := range []string{"web-1", "web-2"} {
		machinetest.AwaitGone(f, f, &machinev1beta1.Machine{}, f.Key(name))
	}
	machinetest.Await(f, f, check, client.ObjectKeyFromObject(check),
		func(check *machinev1beta1.MachineHealthCheck) bool {
			return *check.Status.ExpectedMachines == 4 && *check.Status.CurrentHealthy == 4 &&
				check.Status.RemediationsAllowed == 2
		})
}

// The node of a machine was deleted, and its host joined again as the node of another machine: only the latter machine
// is healthy.
func TestNodeOfAnotherMachine(t *testing.T) {
	t.Parallel()
	f := shared.NewFixture(t)
	owner := addOwner(f)
	m := addMachine(f, "web-0", owner)
	other := addMachine(f, "web-1", owner)
	node := m.Status.NodeRef
	f.MustPatchStatus(other, `{"status":{"nodeRef":{"name":%q,"uid":%q}}}`, node.Name, node.UID)
	check := newCheck(f)
	f.MustCreate(check)
	manage(f, f.Config())
	awaitHealthy := func(want int) {
		t.Helper()
		machinetest.Await(f, f, check, client.ObjectKeyFromObject(check),
			func(check *machinev1beta1.MachineHealthCheck) bool {
				return check.Status.CurrentHealthy != nil && *check.Status.CurrentHealthy == want &&
					*check.Status.ExpectedMachines == want
			})
	}
	f.MustPatchStatus(m, `{"status":{"nodeRef":{"uid":"before"}}}`)
	awaitHealthy(2) // no annotation reports yet whose the node is
	f.MustPatch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}},
		`{"metadata":{"annotations":{"machine.openshift.io/machine":"%s/web-1"}}}`, f.Namespace)
	f.AwaitGone(m)
	awaitHealthy(1)
}

// manage runs the controller, which reaches the API server by a config.
func manage(f *machinetest.Fixture, config *rest.Config) {
	f.Helper()
	f.ManageWith(config, func(mgr ctrl.Manager) error { return healthcheck.SetupWithManager(f.Context(), mgr) })
}

// addOwner creates a MachineSet that no controller looks after.
func addOwner(f *machinetest.Fixture) *machinev1beta1.MachineSet {
	f.Helper()
	owner := &machinev1beta1.MachineSet{ObjectMeta: f.Meta("web")}
	f.MustCreate(owner)
	return owner
}

// newCheck returns a MachineHealthCheck of machines whose node has been broken for a second.
func newCheck(f *machinetest.Fixture) *machinev1beta1.MachineHealthCheck {
	check := &machinev1beta1.MachineHealthCheck{ObjectMeta: f.Meta("web")}
	check.Spec.UnhealthyConditions = []machinev1beta1.UnhealthyCondition{
		{Type: "Broken", Status: corev1.ConditionTrue, Timeout: metav1.Duration{Duration: time.Second}},
	}
	return check
}

// addMachine creates a Machine with a node.
func addMachine(f *machinetest.Fixture, name string, owner *machinev1beta1.MachineSet,
	edits ...func(*machinev1beta1.Machine)) *machinev1beta1.Machine {
	f.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace + "-" + name}}
	machine := &machinev1beta1.Machine{ObjectMeta: f.Meta(name)}
	machine.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(owner, machinev1beta1.GroupVersion.WithKind("MachineSet")),
	}
	for _, edit := range edits {
		edit(machine)
	}
	f.MustCreate(node, machine)
	f.MustPatchStatus(machine, `{"status":{"nodeRef":{"kind":"Node","name":%q,"uid":%q}}}`, node.Name, node.UID)
	return machine
}

func setBroken(f *machinetest.Fixture, node string, status corev1.ConditionStatus) {
	f.Helper()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	object.Status.Conditions = []corev1.NodeCondition{{
		Type: "Broken", Status: status, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute)),
	}}
	patch := client.StrategicMergeFrom(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	f.Must(f.Status().Patch(f.Context(), object, patch))
}
