package machineset_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

func TestMachinesAreAdoptedAndReleasedByTheirLabels(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	matching := map[string]string{"set": "web"}
	orphan, foreign, elsewhere := f.newMachine("orphan", matching), f.newMachine("foreign", matching),
		f.newMachine("elsewhere", matching)
	foreign.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1",
		Kind:       "Namespace",
		Name:       "other",
		UID:        "other",
		Controller: ptr.To(true),
	}}
	foreign.Finalizers = []string{"example.com/kept"} // its owner does not exist: prevents garbage collection
	elsewhere.Spec.ClusterName = "another"
	f.MustCreate(orphan, foreign, elsewhere)
	t.Cleanup(func() {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		_ = stage.Client(t).Patch(t.Context(), foreign, patch)
	})
	f.manage(stage.Sandbox(t).Config)
	set := f.newSet("web", 2)
	f.MustCreate(set)
	machines := f.awaitReplicas(set, 2)
	if len(machines) != 4 || !metav1.IsControlledBy(machines["orphan"], set) ||
		metav1.IsControlledBy(machines["foreign"], set) ||
		metav1.GetControllerOf(machines["elsewhere"]) != nil {
		t.Fatalf("%d machines; orphan %v, foreign %v, elsewhere %v", len(machines),
			machines["orphan"].OwnerReferences, machines["foreign"].OwnerReferences,
			machines["elsewhere"].OwnerReferences)
	}

	f.MustPatch(orphan, `{"metadata":{"labels":{"set":"quarantine"}}}`)
	f.awaitMachine("orphan", func(m *clusterv1.Machine) bool { return metav1.GetControllerOf(m) == nil })
	f.Eventually("a replacement", func() bool { return len(f.machines()) == 5 })
	f.awaitReplicas(set, 2)
	if f.machines()["orphan"].DeletionTimestamp != nil {
		t.Error("a machine that was released is deleted")
	}
}

func TestADeletedSetWaitsForItsMachines(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 2)
	set.Spec.Template.Annotations = map[string]string{held: ""}
	f.MustCreate(set)
	machines := f.awaitReplicas(set, 2)
	f.MustDelete(set)
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
		return hasCondition(s, clusterv1.DeletingCondition, metav1.ConditionTrue, "Deleting 2 Machines")
	})
	for name := range machines {
		machine := f.awaitMachine(name, func(m *clusterv1.Machine) bool { return m.DeletionTimestamp != nil })
		f.awaitSet(set, func(clusterv1.MachineSetStatus) bool { return true })
		f.MustPatch(machine, `{"metadata":{"annotations":{%q:null}}}`, held)
	}
	f.AwaitGone(set)
	if remaining := f.machines(); len(remaining) > 0 {
		t.Errorf("the set was deleted before %d machines", len(remaining))
	}
}

// kubectl delete --cascade=orphan
func TestMachinesOutliveASetThatOrphansThem(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 2)
	f.MustCreate(set)
	f.awaitReplicas(set, 2)
	machinetest.AwaitCollector(t, f, f.newMachine("last", nil))
	f.MustDelete(set, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	f.AwaitGone(set)
	for name, machine := range f.machines() {
		if machine.DeletionTimestamp != nil || metav1.GetControllerOf(machine) != nil {
			t.Errorf("%s: deleted %v, owners %v", name, machine.DeletionTimestamp, machine.OwnerReferences)
		}
	}
	if count := len(f.machines()); count != 2 {
		t.Errorf("%d machines, not 2", count)
	}
}

func TestAnInvalidSetTouchesNoMachine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 2)
	f.MustCreate(set)
	f.awaitReplicas(set, 2)
	f.MustPatch(set, `{"spec":{"replicas":5,"template":{"metadata":{"labels":{"set":"other"}}}}}`)
	const want = `spec.selector "set=web" does not match the labels in spec.template.metadata.labels: "set=other"`
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
		return hasCondition(s, clusterv1.ScalingUpCondition, metav1.ConditionFalse, want) && *s.Replicas == 2
	})
	for name, machine := range f.machines() {
		if !metav1.IsControlledBy(machine, set) || machine.Labels["set"] != "web" {
			t.Errorf("%s: %v, %v", name, machine.Labels, machine.OwnerReferences)
		}
	}
}

func TestPausedSetIsUnchanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 1)
	set.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	f.MustCreate(set)
	machinetest.Await(t, f, set, client.ObjectKeyFromObject(set), func(set *clusterv1.MachineSet) bool {
		return hasCondition(set.Status, clusterv1.PausedCondition, metav1.ConditionTrue, "")
	})
	if count := len(f.machines()); count > 0 {
		t.Errorf("%d machines", count)
	}
	f.MustPatch(set, `{"metadata":{"annotations":{%q:null}}}`, clusterv1.PausedAnnotation)
	f.awaitReplicas(set, 1)
	cluster := &clusterv1.Cluster{ObjectMeta: f.Meta("c")}
	f.MustPatch(cluster, `{"spec":{"paused":true}}`)
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
		return hasCondition(s, clusterv1.PausedCondition, metav1.ConditionTrue, "")
	})
	f.scale(set, 3)
	f.MustPatch(cluster, `{"spec":{"paused":false}}`)
	f.awaitReplicas(set, 3)
}
