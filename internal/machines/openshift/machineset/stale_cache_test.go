package machineset_test

import (
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// TestCacheThatIsBehind has a cache that lacks the controller's own creations and deletions of machines.
func TestCacheThatIsBehind(t *testing.T) {
	t.Parallel()
	f, gate := newIdleFixture(t), machinetest.NewWatchGate("machines")
	f.manage(gate.Config(shared.Sandbox(t).Config))
	t.Cleanup(gate.Open) // before the controller is stopped
	first := f.newSet("first", 1)
	f.MustCreate(first)
	f.awaitReplicas(first, 1) // so the watches are there

	gate.Close()
	set := f.newSet("web", 5)
	f.MustCreate(set)
	f.Eventually("five machines", func() bool { return len(f.machines()) == 6 })
	for generation := range 5 { // each has the controller look again
		f.MustPatch(set, `{"spec":{"template":{"metadata":{"annotations":{"generation":"%d"}}}}}`, generation)
		f.awaitReplicas(set, 5)
		if count := len(f.machines()); count != 6 {
			t.Fatalf("%d machines, not 6", count)
		}
	}
	f.scale(set, 2)
	f.Eventually("two machines", func() bool { return len(living(f.machines())) == 3 })
	for generation := range 5 {
		f.MustPatch(set, `{"spec":{"template":{"metadata":{"annotations":{"generation":"1%d"}}}}}`, generation)
		f.awaitSet(set, func(machinev1beta1.MachineSetStatus) bool { return true })
		if count := len(f.machines()); count != 3 {
			t.Fatalf("%d machines, not 3", count)
		}
	}
	gate.Open()
	f.awaitReplicas(set, 2)
}

// TestMarkTheCacheHasNotSeen: the watch of machines lags behind that of MachineSets.
func TestMarkTheCacheHasNotSeen(t *testing.T) {
	t.Parallel()
	f, gate := newIdleFixture(t), machinetest.NewWatchGate("machines")
	f.manage(gate.Config(shared.Sandbox(t).Config))
	t.Cleanup(gate.Open)
	set := f.newSet("web", 6)
	f.MustCreate(set)
	machines := f.awaitReplicas(set, 6)
	gate.Close()
	marked := &machines[5]
	f.MustPatch(marked, `{"metadata":{"annotations":{"machine.openshift.io/delete-machine":"yes"}}}`)
	f.scale(set, 5)
	f.Eventually("one machine less", func() bool { return len(f.machines()) == 5 })
	if names(f.machines())[marked.Name] {
		t.Errorf("got the marked machine %s, want it deleted", marked.Name)
	}
}

// TestMarkThatMovesBeforeTheDeletion: a user marks another machine after the set has chosen one, and before it deletes
// that one.
func TestMarkThatMovesBeforeTheDeletion(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	var before, after *machinev1beta1.Machine
	f.manage(machinetest.BeforeFirstDelete(shared.Sandbox(t).Config, func(string) {
		f.MustPatch(before, `{"metadata":{"annotations":{"machine.openshift.io/delete-machine":null}}}`)
		f.MustPatch(after, `{"metadata":{"annotations":{"machine.openshift.io/delete-machine":"yes"}}}`)
	}))
	set := f.newSet("web", 2)
	f.MustCreate(set)
	machines := f.awaitReplicas(set, 2)
	before, after = &machines[0], &machines[1]
	f.MustPatch(before, `{"metadata":{"annotations":{"machine.openshift.io/delete-machine":"yes"}}}`)
	f.scale(set, 1)
	f.Eventually("one machine less", func() bool { return len(f.machines()) == 1 })
	if !names(f.machines())[before.Name] {
		t.Errorf("%s was deleted, which was not marked any more", before.Name)
	}
}
