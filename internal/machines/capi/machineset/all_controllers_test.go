package machineset_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi"
	"github.com/runlevel/runlevel/internal/machines/capi/machineset"
	"github.com/runlevel/runlevel/internal/machines/infra/kwok"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// TestWithTheControllersOfMachines creates simulated machines of a set, replaces one that a hook holds, and deletes the
// set: with the controllers of Machines, of infrastructure and of bootstrap configs.
func TestWithTheControllersOfMachines(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	stage.ManageIn(t, f.Namespace, stage.Sandbox(t).Config, func(m ctrl.Manager) error {
		if err := machineset.SetupWithManager(m, machineset.Options{}); err != nil {
			return err
		}
		for _, add := range []func(ctrl.Manager) error{kwok.SetupWithManager, kwok.SetupConfigsWithManager} {
			if err := add(m); err != nil {
				return err
			}
		}
		return capi.SetupWithManager(t.Context(), m, capi.Options{})
	})
	plane := &unstructured.Unstructured{
		Object: map[string]any{"status": map[string]any{"externalManagedControlPlane": true}},
	}
	plane.SetGroupVersionKind(schema.GroupVersionKind{Group: "infra.example.com", Version: "v1", Kind: "Slab"})
	plane.SetNamespace(f.Namespace)
	plane.SetName("plane")
	f.MustCreate(plane)
	f.MustPatch(&clusterv1.Cluster{ObjectMeta: f.Meta("c")},
		`{"spec":{"controlPlaneRef":{"apiGroup":"infra.example.com","kind":"Slab","name":"plane"}}}`)

	const hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup"
	set := f.newSet(f.Namespace, 2) // nodes have the names of machines, and all tests share them
	set.Spec.Template.Annotations = map[string]string{hook: "operator"}
	f.MustCreate(set)
	isUp := func(s clusterv1.MachineSetStatus) bool {
		return *s.Replicas == 2 && *s.ReadyReplicas == 2 && *s.AvailableReplicas == 2 &&
			hasCondition(s, clusterv1.MachinesReadyCondition, metav1.ConditionTrue, "")
	}
	f.awaitSet(set, isUp)
	var first *clusterv1.Machine
	for _, first = range f.machines() {
		break
	}
	f.MustDelete(first)
	f.awaitMachine(first.Name, func(m *clusterv1.Machine) bool {
		return m.Status.Phase == string(clusterv1.MachinePhaseDeleting)
	})
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool { return *s.Replicas == 2 })
	if count := len(f.machines()); count != 2 {
		t.Errorf("%d machines while one is held", count)
	}
	f.MustPatch(first, `{"metadata":{"annotations":{%q:null}}}`, hook)
	f.AwaitGone(first)
	f.Eventually("a replacement", func() bool { return len(f.machines()) == 2 })
	f.awaitSet(set, isUp)
	machinetest.AwaitGone(t, f, &corev1.Node{}, client.ObjectKey{Name: first.Name})

	f.MustPatch(set, `{"spec":{"template":{"metadata":{"annotations":null}}}}`)
	for name := range f.machines() {
		f.awaitMachine(name, func(m *clusterv1.Machine) bool { return m.Annotations[hook] == "" })
	}
	f.MustDelete(set)
	f.AwaitGone(set)
	if machines, all := f.machines(), f.infrastructure(); len(machines)+len(all) > 0 {
		t.Errorf("the set was deleted before %d machines and %d of their infrastructure", len(machines), len(all))
	}
}
