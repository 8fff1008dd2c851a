package openshift_test

import (
	"slices"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestA1PreDrainHookHoldsAll checks that a pre-drain hook prevents all changes of a machine.
func TestA1PreDrainHookHoldsAll(t *testing.T) {
	s := newScenario(t)
	s.start(quick)
	node := s.addNode("n", nil)
	pod := s.addPod("web", node, nil)
	s.addMachine("a", node, machinev1beta1.LifecycleHooks{
		PreDrain: []machinev1beta1.LifecycleHook{{Name: "MigrateApp", Owner: "app-op"}},
	})
	m := s.awaitMachine("a", func(m *machinev1beta1.Machine) bool {
		return ptr.Deref(m.Status.Phase, "") == machinev1beta1.PhaseRunning
	})
	drainable := machinev1beta1.Condition{
		Type: machinev1beta1.MachineDrainable, Status: corev1.ConditionFalse,
		Reason: machinev1beta1.MachineHookPresent, Severity: machinev1beta1.ConditionSeverityWarning,
		Message: "Drain operation currently blocked by: [{Name:MigrateApp Owner:app-op}]",
	}
	s.expectCondition(m, drainable)
	s.expectCondition(m, machinev1beta1.Condition{Type: machinev1beta1.MachineTerminable, Status: corev1.ConditionTrue})

	s.writes.arm(0, false)
	s.MustDelete(m)
	s.expectEvents("a", "DrainBlocked", 1)
	s.provider.forget() // it was looked at until the machine was deleted
	// Hooks of the other list show that the controller has looked again.
	for _, name := range []string{"One", "Two"} {
		s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preTerminate":[{"name":"%sHook","owner":"test"}]}}}`, name)
		m = s.awaitCondition("a", machinev1beta1.MachineTerminable, corev1.ConditionFalse, name)
	}
	if ptr.Deref(m.Status.Phase, "") != machinev1beta1.PhaseDeleting {
		t.Errorf("phase: got %q, want Deleting", ptr.Deref(m.Status.Phase, ""))
	}
	s.expectCondition(m, drainable)
	s.expectCondition(m, machinev1beta1.Condition{
		Type: machinev1beta1.MachineTerminable, Status: corev1.ConditionFalse,
		Reason: machinev1beta1.MachineHookPresent, Severity: machinev1beta1.ConditionSeverityWarning,
		Message: "Terminate operation currently blocked by: [{Name:TwoHook Owner:test}]",
	})
	if drained := conditionOf(m, machinev1beta1.MachineDrained); drained.Type != "" {
		t.Errorf("Drained beside a hook: got %+v, want none", drained)
	}
	s.expectUntouched(node, pod)
	s.expectEvents("a", "DrainBlocked", 1)
	if calls := s.provider.callsOf(""); len(calls) > 0 {
		t.Errorf("calls of the provider beside a hook: got %v, want none", calls)
	}
	if writes := append(s.writes.matching("eviction"), s.writes.ofNodes()...); len(writes) > 0 {
		t.Errorf("written in spite of a hook: %q", writes)
	}
}

// TestA3EachOwnerRemovesItsHook has two hooks: the removal of one hook leaves the other.
func TestA3EachOwnerRemovesItsHook(t *testing.T) {
	s := newScenario(t)
	s.start(quick)
	node := s.addNode("n", nil)
	pod := s.addPod("web", node, nil)
	m := s.addMachine("a", node, machinev1beta1.LifecycleHooks{PreDrain: hook("Backup", "Migrate")})
	s.MustDelete(m)
	s.awaitCondition("a", machinev1beta1.MachineDrainable, corev1.ConditionFalse, "Backup")
	s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preDrain":[{"name":"Migrate","owner":"owner-of-Migrate"}]}}}`)
	m = s.awaitMachine("a", func(m *machinev1beta1.Machine) bool {
		return conditionOf(m, machinev1beta1.MachineDrainable).Message ==
			"Drain operation currently blocked by: [{Name:Migrate Owner:owner-of-Migrate}]"
	})
	s.expectUntouched(node, pod)
	s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preDrain":null}}}`)
	s.AwaitGone(m)
	s.AwaitGone(node)
}

// TestA4SkippedDrains has drains skipped: pre-drain hooks don't hold them, pre-terminate hooks do.
func TestA4SkippedDrains(t *testing.T) {
	hooks := machinev1beta1.LifecycleHooks{PreDrain: hook("Migrate"), PreTerminate: hook("Detach")}
	t.Run("without a node", func(t *testing.T) {
		s := newScenario(t)
		s.start(quick)
		m := s.addMachine("a", nil, hooks)
		s.expectSkip(m)
		s.AwaitGone(m)
	})
	t.Run("excluded", func(t *testing.T) {
		s := newScenario(t)
		s.start(quick)
		node := s.addNode("n", nil)
		pod := s.addPod("web", node, nil)
		m := s.addMachine("a", node, hooks)
		s.MustPatch(m, `{"metadata":{"annotations":{"machine.openshift.io/exclude-node-draining":""}}}`)
		s.writes.arm(0, false)
		s.expectSkip(m)
		s.AwaitGone(m)
		s.AwaitGone(node)
		writes := append(s.writes.matching("eviction"), s.writes.ofNodes()...)
		if want := []string{"DELETE nodes/n"}; !slices.Equal(writes, want) {
			t.Errorf("pod %s was to be left alone: got writes %q, want %q", client.ObjectKeyFromObject(pod), writes,
				want)
		}
	})
}

// expectSkip deletes a machine that has both hooks, and removes the second.
func (s *scenario) expectSkip(m *machinev1beta1.Machine) {
	s.Helper()
	s.MustDelete(m)
	s.expectEvents("a", "DrainSkipped", 1)
	m = s.awaitCondition("a", machinev1beta1.MachineDrained, corev1.ConditionTrue, "")
	s.expectCondition(m, machinev1beta1.Condition{
		Type: machinev1beta1.MachineDrained, Status: corev1.ConditionTrue, Message: "Node drain skipped",
	})
	// A changed report shows that the controller has reconciled the machine again.
	s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preTerminate":[{"name":"Detach","owner":"another"}]}}}`)
	s.awaitCondition("a", machinev1beta1.MachineTerminable, corev1.ConditionFalse, "another")
	if calls := s.provider.callsOf("delete"); len(calls) > 0 {
		s.Errorf("deletes of infrastructure beside a hook: got %v, want none", calls)
	}
	s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preTerminate":null}}}`)
}

// TestA6LateHooks adds hooks while a machine is being deleted: they hold stages that have not begun.
func TestA6LateHooks(t *testing.T) {
	s := newScenario(t)
	s.start(quick)
	s.provider.configure(func() { s.provider.isSlow = true })
	node := s.addNode("n", nil)
	m := s.addMachine("a", node, machinev1beta1.LifecycleHooks{PreTerminate: hook("Detach")})
	s.MustDelete(m)
	s.awaitCondition("a", machinev1beta1.MachineDrained, corev1.ConditionTrue, "")
	s.writes.arm(0, false)
	// A late pre-drain hook reports, and holds nothing; a late pre-terminate hook holds the infrastructure.
	s.MustPatch(m,
		`{"spec":{"lifecycleHooks":{"preDrain":[{"name":"Late","owner":"test"}],"preTerminate":[{"name":"Later","owner":"test"}]}}}`)
	s.awaitCondition("a", machinev1beta1.MachineTerminable, corev1.ConditionFalse, "Later")
	m = s.awaitCondition("a", machinev1beta1.MachineDrainable, corev1.ConditionFalse, "Late")
	s.expectCondition(m, machinev1beta1.Condition{
		Type: machinev1beta1.MachineDrained, Status: corev1.ConditionTrue, Message: "Drain finished successfully",
	})
	if calls := s.provider.callsOf("delete"); len(calls) > 0 {
		t.Errorf("deletes of infrastructure beside a late hook: got %v, want none", calls)
	}
	s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preTerminate":null}}}`)
	m = s.awaitCondition("a", machinev1beta1.InstanceExistsCondition, corev1.ConditionTrue, "to be deleted")
	// Once the infrastructure was asked to go, no hook brings it back.
	s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preTerminate":[{"name":"TooLate","owner":"test"}]}}}`)
	s.awaitCondition("a", machinev1beta1.MachineTerminable, corev1.ConditionFalse, "TooLate")
	s.provider.finish()
	s.AwaitGone(m)
	s.AwaitGone(node)
	writes := append(s.writes.matching("eviction"), s.writes.ofNodes()...)
	if want := []string{"DELETE nodes/n"}; !slices.Equal(writes, want) {
		t.Errorf("writes after the drain: got %q, want %q", writes, want)
	}
}
