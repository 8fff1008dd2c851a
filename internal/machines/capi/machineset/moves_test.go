package machineset_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
)

// newSetOf returns a set of a deployment, whose machines have a hash of their template as label.
func (f *fixture) newSetOf(d *clusterv1.MachineDeployment, name string, replicas int32) *clusterv1.MachineSet {
	set := f.newSet(name, replicas)
	labels := map[string]string{"role": "web", clusterv1.MachineDeploymentUniqueLabel: name}
	set.Labels, set.Spec.Template.Labels, set.Spec.Selector.MatchLabels = labels, labels, labels
	set.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(d, clusterv1.GroupVersion.WithKind("MachineDeployment")),
	}
	return set
}

func (f *fixture) annotate(object client.Object, key, value string) {
	f.Helper()
	f.MustPatch(object, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
}

// awaitScalingUp waits until a set reports a problem.
func (f *fixture) awaitScalingUp(set *clusterv1.MachineSet, message string) {
	f.Helper()
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
		for _, condition := range s.Conditions {
			if condition.Type == clusterv1.ScalingUpCondition && strings.Contains(condition.Message, message) {
				return true
			}
		}
		return false
	})
}

// TestMachinesAreMoved acts as the deployment of two sets, and as the controller of machines.
func TestMachinesAreMoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := f.newDeployment()
	f.MustCreate(d)
	source, target := f.newSetOf(d, "from", 3), f.newSetOf(d, "to", 0)
	target.Spec.Template.Spec.FailureDomain = "b"
	f.MustCreate(source, target)
	f.awaitReplicas(source, 3)
	for name, machine := range f.machines() {
		if len(f.withNode()) < 2 {
			before := machine.DeepCopy()
			machine.Status.NodeRef.Name = name
			f.Must(f.Status().Patch(t.Context(), machine, client.MergeFrom(before)))
		}
	}

	// A set that does not expect machines would delete them as surplus.
	f.MustPatch(source, `{"metadata":{"annotations":{%q:"to"}},"spec":{"replicas":1}}`,
		clusterv1.MachineSetMoveMachinesToMachineSetAnnotation)
	f.awaitScalingUp(source,
		"machines can't be moved to MachineSet to, which does not expect machines of MachineSet from")
	if remaining := living(f.machines()); len(remaining) != 3 {
		t.Fatalf("got %d machines, want 3", len(remaining))
	}
	// The one without a node is deleted, and one of the others is moved.
	f.annotate(target, clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation, "from")
	f.awaitReplicas(source, 1)
	f.awaitReplicas(target, 1)
	moved := f.ofSet(target)
	if moved == nil || len(f.machines()) != 2 || len(f.withNode()) != 2 ||
		moved.Annotations[runtimev1.PendingHooksAnnotation] != "" {
		t.Fatalf("moved is %+v", moved)
	}
	// Its update begins when it is counted.
	f.MustPatch(target, `{"metadata":{"annotations":{%q:%q}},"spec":{"replicas":1}}`,
		clusterv1.AcknowledgedMoveAnnotation,
		moved.Name)
	f.awaitMachine(moved.Name, func(m *clusterv1.Machine) bool {
		_, isPending := m.Annotations[clusterv1.PendingAcknowledgeMoveAnnotation]
		return m.Annotations[runtimev1.PendingHooksAnnotation] == "UpdateMachine" && !isPending &&
			m.Spec.FailureDomain == "b"
	})
	infrastructure := &v1alpha1.KwokMachine{}
	f.Must(f.Get(t.Context(), client.ObjectKeyFromObject(moved), infrastructure))
	if _, isUpdating := infrastructure.Annotations[clusterv1.UpdateInProgressAnnotation]; !isUpdating {
		t.Errorf("infrastructure: got %+v, want the annotation of a running update", infrastructure)
	}
	// The machine is not moved on before its update has ended.
	f.annotate(source, clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation, "to")
	f.MustPatch(target, `{"metadata":{"annotations":{%q:"from",%q:null}},"spec":{"replicas":0}}`,
		clusterv1.MachineSetMoveMachinesToMachineSetAnnotation, clusterv1.AcknowledgedMoveAnnotation)
	f.awaitReplicas(target, 1)
	if f.ofSet(target) == nil {
		t.Error("a machine is moved again during its update")
	}
	f.MustPatch(moved, `{"metadata":{"annotations":{%q:null,%q:null}}}`, clusterv1.UpdateInProgressAnnotation,
		runtimev1.PendingHooksAnnotation)
	f.awaitReplicas(source, 2)
}

// withNode returns the machines that have a node.
func (f *fixture) withNode() []*clusterv1.Machine {
	f.Helper()
	var found []*clusterv1.Machine
	for _, machine := range f.machines() {
		if machine.Status.NodeRef.IsDefined() {
			found = append(found, machine)
		}
	}
	return found
}

// ofSet returns a machine of a set; nil if there is none.
func (f *fixture) ofSet(set *clusterv1.MachineSet) *clusterv1.Machine {
	f.Helper()
	for _, machine := range f.machines() {
		if metav1.IsControlledBy(machine, set) && machine.DeletionTimestamp == nil {
			return machine
		}
	}
	return nil
}
