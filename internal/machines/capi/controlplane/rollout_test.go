package controlplane_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
)

// TestControlPlane creates three machines, one after the other, and replaces them by a new version: a new one first.
func TestControlPlane(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 1)
	before := p.names()
	p.await("initialized and available", func(plane *v1alpha1.RunlevelControlPlane) bool {
		return plane.Status.Initialization.ControlPlaneInitialized != nil &&
			*plane.Status.Initialization.ControlPlaneInitialized &&
			plane.Status.Version == "v1.36.0" && plane.Status.Selector != ""
	})
	p.awaitCondition(clusterv1.AvailableCondition, metav1.ConditionTrue, "")

	p.upgrade("v1.36.1")
	p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue, "Version v1.36.0, v1.36.1 required")
	p.awaitSettled(3)
	p.await("the new version in its status", func(plane *v1alpha1.RunlevelControlPlane) bool {
		return plane.Status.Version == "v1.36.1" &&
			slices.Equal(plane.Status.Versions, []clusterv1.StatusVersion{{Version: "v1.36.1", Replicas: 3}})
	})
	for _, name := range p.names() {
		if slices.Contains(before, name) {
			t.Errorf("machine %s was not replaced", name)
		}
	}
	p.MustPatch(p.plane, `{"spec":{"replicas":1}}`)
	p.awaitSettled(1)
	p.MustDelete(p.plane)
	p.AwaitGone(p.plane)
	if remaining := p.names(); len(remaining) > 0 {
		t.Errorf("the control plane was deleted before its machines %v", remaining)
	}
}

// TestInPlaceUpdate updates three machines in place, one after the other.
func TestInPlaceUpdate(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 0)
	p.extend()
	before := p.names()
	p.upgrade("v1.36.1")
	p.awaitSettled(3)
	if after := p.names(); !slices.Equal(before, after) {
		t.Errorf("machines %v became %v", before, after)
	}
	for name, m := range p.machines() {
		if m.Spec.Version != "v1.36.1" {
			t.Errorf("machine %s has version %s", name, m.Spec.Version)
		}
	}
}

// TestInPlaceUpdateWithSurge creates a new machine first, updates as many as possible in place, and deletes the surplus
// machine.
func TestInPlaceUpdateWithSurge(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 1)
	p.extend()
	before := p.names()
	p.upgrade("v1.36.1")
	p.awaitSettled(3)
	kept := slices.DeleteFunc(p.names(), func(name string) bool { return !slices.Contains(before, name) })
	if len(kept) != 2 {
		t.Errorf("of machines %v, these were updated in place: %v", before, kept)
	}
}

// TestReplacedWhereTheExtensionCannot replaces machines, with the reason, where the extension covers a part of the
// changes: the version, and not another template.
func TestReplacedWhereTheExtensionCannot(t *testing.T) {
	t.Parallel()
	p := start(t, 3, 0)
	e, _ := p.extend()
	before := p.names()
	p.MustPatch(p.plane,
		`{"spec":{"version":"v1.36.1","machineTemplate":{"spec":{"infrastructureRef":{"name":"large"}}}}}`)
	reason := "infrastructureMachine spec.node.labels.size is not covered by extension canupdatemachine." + p.Namespace
	p.awaitCondition(clusterv1.RollingOutCondition, metav1.ConditionTrue, "is replaced, not updated in place: "+reason)
	p.awaitSettled(3)
	for _, name := range p.names() {
		if slices.Contains(before, name) {
			t.Errorf("machine %s was not replaced", name)
		}
	}
	for _, name := range before {
		p.AwaitEvent(name, "Replaced", reason)
	}
	if calls := requestsOf[hooksv1.UpdateMachineRequest](p, e, "UpdateMachine"); len(calls) > 0 {
		t.Errorf("updates in place: got %v, want none", calls)
	}
}
