package machineset_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newDeployment returns one whose sets the test creates.
func (f *fixture) newDeployment() *clusterv1.MachineDeployment {
	d := &clusterv1.MachineDeployment{ObjectMeta: f.Meta("web")}
	d.Spec = clusterv1.MachineDeploymentSpec{ClusterName: "c", Replicas: ptr.To[int32](3)}
	d.Spec.Selector.MatchLabels = map[string]string{"role": "web"}
	d.Spec.Template.Labels = d.Spec.Selector.MatchLabels
	d.Spec.Template.Spec = f.newSet("any", 1).Spec.Template.Spec
	return d
}

// mark sets the condition of a health check on a machine, and the condition of its owner if the owner has to remediate
// it.
func (f *fixture) mark(name string, health metav1.ConditionStatus, isOwners bool) {
	f.Helper()
	machine := f.machines()[name]
	before := machine.DeepCopy()
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: clusterv1.MachineHealthCheckSucceededCondition, Status: health, Reason: "Tested",
	})
	if isOwners {
		meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
			Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
		})
	}
	f.Must(f.Status().Patch(f.Context(), machine, client.MergeFrom(before)))
}

// hold keeps machines when they are deleted.
func (f *fixture) hold(names ...string) {
	f.Helper()
	for _, name := range names {
		f.annotate(&clusterv1.Machine{ObjectMeta: f.Meta(name)}, held, "")
	}
}

// release lets machines go that are being deleted, and returns how many there are.
func (f *fixture) release() (released int) {
	f.Helper()
	for _, machine := range f.machines() {
		if machine.DeletionTimestamp != nil {
			f.MustPatch(machine, `{"metadata":{"annotations":{%q:null}}}`, held)
			f.AwaitGone(machine)
			released++
		}
	}
	return released
}

// remediation returns the reason and the message of a machine's remediation.
func remediation(machine *clusterv1.Machine) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(machine.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition),
		metav1.Condition{})
}

// awaitRemediation waits until so many machines are being deleted because they were marked, and so many wait for that.
// More are never being deleted.
func (f *fixture) awaitRemediation(deleting, waiting int) {
	f.Helper()
	f.Eventually("machines are remediated", func() bool {
		goes, waits := 0, 0
		for _, machine := range f.machines() {
			switch aggregated := remediation(machine); {
			case machine.DeletionTimestamp != nil &&
				aggregated.Reason == clusterv1.MachineSetMachineRemediationMachineDeletingReason:
				goes++
			case aggregated.Reason == clusterv1.MachineSetMachineRemediationDeferredReason:
				waits++
			}
		}
		if goes > deleting {
			f.Fatalf("%d machines are being deleted at once", goes)
		}
		return goes == deleting && waits == waiting
	})
}

func TestRemediationsAreLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := f.newDeployment()
	d.Spec.Remediation.MaxInFlight = ptr.To(intstr.FromInt32(1))
	f.MustCreate(d)
	set := f.newSetOf(d, "web", 3)
	f.MustCreate(set)
	names := slices.Sorted(maps.Keys(f.awaitReplicas(set, 3)))
	f.hold(names...)
	f.annotate(set, clusterv1.PausedAnnotation, "")
	for _, name := range names {
		f.mark(name, metav1.ConditionFalse, true)
	}
	first := &clusterv1.Machine{ObjectMeta: f.Meta(names[2])}
	f.annotate(first, clusterv1.RemediateMachineAnnotation, "")
	f.MustPatch(set, `{"metadata":{"annotations":{%q:null}}}`, clusterv1.PausedAnnotation)

	f.awaitRemediation(1, 2)
	if f.machines()[first.Name].DeletionTimestamp == nil {
		t.Error("another machine is deleted before the annotated one")
	}
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
		return hasCondition(s, clusterv1.RemediatingCondition, metav1.ConditionTrue,
			"* Machines "+names[0]+", "+names[1]+
				": Waiting because there are already too many remediations in progress (spec.remediation.maxInFlight is 1)")
	})
	f.release()
	f.awaitRemediation(1, 1)
	// The second one is still deleted when the limit is removed.
	f.MustPatch(d, `{"spec":{"remediation":{"maxInFlight":"100%%"}}}`)
	f.awaitRemediation(2, 0)
	if f.release() != 2 {
		t.Error("others than the two are being deleted")
	}
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
		return *s.Replicas == 3 && hasCondition(s, clusterv1.RemediatingCondition, metav1.ConditionFalse, "")
	})
}

// Without a limit, all marked machines are replaced, including one during its update in place, and no others.
func TestMarkedMachinesAreReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 4)
	f.MustCreate(set)
	names := slices.Sorted(maps.Keys(f.awaitReplicas(set, 4)))
	f.hold(names...)
	f.annotate(&clusterv1.Machine{ObjectMeta: f.Meta(names[0])}, clusterv1.UpdateInProgressAnnotation, "")
	f.mark(names[3], metav1.ConditionTrue, true)
	f.mark(names[2], metav1.ConditionFalse, false)
	f.mark(names[1], metav1.ConditionFalse, true)
	f.mark(names[0], metav1.ConditionFalse, true)
	f.awaitRemediation(2, 0)
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
		return hasCondition(s, clusterv1.RemediatingCondition, metav1.ConditionTrue,
			"* Machines "+names[0]+", "+names[1]+": Machine is deleting")
	})
	// it is healthy again
	f.awaitMachine(names[3], func(m *clusterv1.Machine) bool { return remediation(m).Type == "" })
	if f.release() != 2 {
		t.Error("machines that are not marked are deleted")
	}
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
		return *s.Replicas == 4 &&
			hasCondition(s, clusterv1.RemediatingCondition, metav1.ConditionFalse,
				"Machine "+names[2]+" is not healthy")
	})
	if all := f.machines(); all[names[2]] == nil || all[names[3]] == nil {
		t.Error("machines were deleted that are not marked")
	}
}

// A marked machine of an outdated set is left to the rollout, which deletes it: it is not worth an update in place.
func TestARolloutReplacesMarkedMachines(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := f.newDeployment()
	d.Spec.Template.Spec.FailureDomain = "b"
	f.MustCreate(d)
	source, target := f.newSetOf(d, "from", 1), f.newSetOf(d, "to", 0)
	target.Spec.Template.Spec.FailureDomain = "b"
	target.Annotations = map[string]string{clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation: "from"}
	f.MustCreate(source, target)
	f.awaitReplicas(source, 1)
	machine := f.one()
	before := machine.DeepCopy()
	machine.Status.NodeRef.Name = "node"
	f.Must(f.Status().Patch(t.Context(), machine, client.MergeFrom(before)))
	f.mark(machine.Name, metav1.ConditionFalse, true)
	f.awaitMachine(machine.Name, func(m *clusterv1.Machine) bool {
		aggregated := remediation(m)
		return aggregated.Reason == clusterv1.MachineSetMachineCannotBeRemediatedReason &&
			strings.Contains(aggregated.Message, "pending removal due to rollout")
	})
	f.MustPatch(source, `{"metadata":{"annotations":{%q:"to"}},"spec":{"replicas":0}}`,
		clusterv1.MachineSetMoveMachinesToMachineSetAnnotation)
	f.AwaitGone(machine)
	if remaining := f.machines(); len(remaining) != 0 {
		t.Errorf("remaining machines: got %v, want none", slices.Collect(maps.Keys(remaining)))
	}
}
