package controlplane_test

import (
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// TestMachineThatJoinsBeforeItsDeletion lets an outdated machine join after the set has read it, and before the set
// deletes it as an unready machine: it must stay, and the older machine of its index must be deleted.
func TestMachineThatJoinsBeforeItsDeletion(t *testing.T) {
	s := newFixture(t)
	manageMachines(t)
	s.addThree()
	var fresh string
	s.runSet(machinetest.BeforeFirstDelete(stage.Sandbox(t).Config, func(name string) {
		if name != fresh {
			t.Errorf("machine %s is deleted first, not %s", name, fresh)
		}
		s.MustPatch(&v1alpha1.KwokMachine{ObjectMeta: s.Meta(fresh)}, `{"spec":{"startFailure":null}}`)
		s.AwaitMachine(fresh, func(m *machinev1beta1.Machine) bool {
			return ptr.Deref(m.Status.Phase, "") == machinev1beta1.PhaseRunning
		})
	}))
	set := s.newSet("Active", "RollingUpdate", "small")
	old := s.settle(set)
	s.changeValue(set, `{"spec":{"startFailure":{"message":"no address is left"}}}`)
	fresh = s.awaitNeverJoined(old, "0")
	s.changeValue(set, `{"spec":{"startFailure":null,"node":{"labels":{"size":"large"}}}}`)
	s.AwaitEvent("cluster", "Deleted", "deleted machine: ")
	if deleted := s.Events("cluster", "Deleted"); deleted[0].Note != "deleted machine: "+s.name("a") {
		t.Errorf("%s, not the machine that was ready before", deleted[0].Note)
	}
}
