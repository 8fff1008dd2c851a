package controlplane_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

const remediationInProgress, remediationFor = "controlplane.cluster.x-k8s.io/remediation-in-progress",
	"controlplane.cluster.x-k8s.io/remediation-for"

// setCondition sets a condition of a machine, as a MachineHealthCheck does.
func (f *fixture) setCondition(name, kind string, status metav1.ConditionStatus, reason string) {
	f.Helper()
	f.Eventually("the condition is set", func() bool {
		m := &clusterv1.Machine{}
		f.Must(f.Get(f.Context(), f.Key(name), m))
		base := client.MergeFromWithOptions(m.DeepCopy(), client.MergeFromWithOptimisticLock{})
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason})
		return f.Status().Patch(f.Context(), m, base) == nil
	})
}

// mark marks a machine as unhealthy, and requests its replacement by its owner.
func (f *fixture) mark(name string) {
	f.Helper()
	f.setCondition(name, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "UnhealthyNode")
	f.setCondition(name, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "WaitingForRemediation")
}

// awaitRemediation waits until the condition OwnerRemediated of a machine has a reason, and a text in its message.
func (f *fixture) awaitRemediation(name, reason, text string) {
	f.Helper()
	machinetest.Await(f, f, &clusterv1.Machine{}, f.Key(name), func(m *clusterv1.Machine) bool {
		found := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
		return found != nil && found.Status == metav1.ConditionFalse && found.Reason == reason &&
			strings.Contains(found.Message, text)
	})
}

// awaitReplaced waits until a machine is deleted and replaced, and returns the name of its replacement.
func (f *fixture) awaitReplaced(name string) string {
	f.Helper()
	before := f.names()
	f.AwaitGone(&clusterv1.Machine{ObjectMeta: f.Meta(name)})
	f.awaitSettled(int32(len(before)))
	fresh := slices.DeleteFunc(f.names(), func(name string) bool { return slices.Contains(before, name) })
	if len(fresh) != 1 {
		f.Fatalf("%v has taken the place of %s", fresh, name)
	}
	return fresh[0]
}

// TestRemediation replaces a machine that a health check has marked, within the limits of the control plane.
func TestRemediation(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 1)
	first := p.names()[0]
	p.mark(first)
	second := p.awaitReplaced(first)
	var data struct {
		Machine    string
		RetryCount int
	}
	if p.Must(json.Unmarshal([]byte(p.machines()[second].Annotations[remediationFor]), &data)); data.Machine != first ||
		data.RetryCount != 0 {
		t.Errorf("replacement: got %+v, want machine %s, no retry", data, first)
	}
	p.await("free for another one", func(plane *v1alpha1.RunlevelControlPlane) bool {
		_, isRemediating := plane.Annotations[remediationInProgress]
		return !isRemediating && plane.Status.LastRemediation.Machine == first
	})

	p.MustPatch(p.plane, `{"spec":{"remediation":{"retryPeriodSeconds":3600}}}`)
	p.mark(second)
	p.awaitRemediation(second, "RemediationDeferred", "already failed in the latest 1h0m0s (RetryPeriod)")
	p.MustPatch(p.plane, `{"spec":{"remediation":{"retryPeriodSeconds":null,"maxRetry":0}}}`)
	p.awaitRemediation(second, "CannotBeRemediated", "already failed 0 times (MaxRetry)")

	p.setCondition(second, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, "Succeeded")
	machinetest.Await(t, p, &clusterv1.Machine{}, p.Key(second), func(m *clusterv1.Machine) bool {
		return meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition) == nil
	})
	p.MustPatch(p.plane, `{"spec":{"remediation":{"maxRetry":1}}}`)
	p.mark(second)
	third := p.awaitReplaced(second)
	if p.Must(json.Unmarshal([]byte(p.machines()[third].Annotations[remediationFor]), &data)); data.Machine != second ||
		data.RetryCount != 1 {
		t.Errorf("second replacement: got %+v, want machine %s, one retry", data, second)
	}
	p.mark(third)
	p.awaitRemediation(third, "CannotBeRemediated", "already failed 1 times (MaxRetry)")
	p.MustPatch(p.plane, `{"spec":{"remediation":{"minHealthyPeriodSeconds":0}}}`) // so that it is not a retry
	p.awaitReplaced(third)
}

// TestNoRemediation does not replace a machine that would be missed.
func TestNoRemediation(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 1)
	names := p.names()
	p.setCondition(names[1], clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "UnhealthyNode")
	p.await("without one machine", func(plane *v1alpha1.RunlevelControlPlane) bool {
		return *plane.Status.AvailableReplicas == 2
	})
	p.mark(names[0])
	p.awaitRemediation(names[0], "CannotBeRemediated", "this could cost etcd its quorum")
	p.awaitCondition(clusterv1.RemediatingCondition, metav1.ConditionTrue, "this could cost etcd its quorum")
	for _, name := range names[:2] {
		p.setCondition(name, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, "Succeeded")
	}
	p.awaitSettled(3)
	p.MustPatch(p.plane, `{"spec":{"replicas":1}}`)
	p.awaitSettled(1)
	last := p.names()[0]
	p.mark(last)
	p.awaitRemediation(last, "CannotBeRemediated", "current replicas are less or equal to 1")

	// A killed controller may have left these machines: one that has recovered, one whose replacement is no longer
	// wanted, and one with an invalid state.
	p.setCondition(last, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, "Succeeded")
	p.awaitSettled(1)
	for _, value := range []string{`{"machine":"` + last + `"}`, `{"machine":"absent"}`, `?`} {
		text, _ := json.Marshal(value)
		p.MustPatch(p.plane, `{"metadata":{"annotations":{%q:%s}}}`, remediationInProgress, text)
		p.await("without "+value, func(plane *v1alpha1.RunlevelControlPlane) bool {
			_, isRemediating := plane.Annotations[remediationInProgress]
			return !isRemediating
		})
	}
}

// TestRemediationOfASuccessor replaces a machine that fails before it has taken over from one whose deletion a hook
// holds.
func TestRemediationOfASuccessor(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 1)
	before := p.machines()
	held := before[p.names()[0]]
	p.MustPatch(held,
		`{"metadata":{"annotations":{"pre-terminate.delete.hook.machine.cluster.x-k8s.io/member":"etcd"}}}`)
	p.MustDelete(held)
	successor := p.awaitSuccessor(before)
	p.mark(successor)
	p.AwaitGone(&clusterv1.Machine{ObjectMeta: p.Meta(successor)})
	p.awaitSuccessor(before)
	p.MustPatch(held, `{"metadata":{"annotations":{"pre-terminate.delete.hook.machine.cluster.x-k8s.io/member":null}}}`)
	p.awaitSettled(3)
}

// awaitSuccessor waits until a fourth machine is available, and returns its name.
func (f *fixture) awaitSuccessor(before map[string]*clusterv1.Machine) (name string) {
	f.Helper()
	f.Eventually("a fourth machine is available", func() bool {
		machines := f.machines()
		for candidate, m := range machines {
			if before[candidate] == nil && rolloutrules.IsAvailable(m) {
				name = candidate
			}
		}
		return name != "" && len(machines) == 4
	})
	return name
}
