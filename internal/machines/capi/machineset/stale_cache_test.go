package machineset_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// The controller's cache lacks its own creations and deletions of machines.
func TestStaleCache(t *testing.T) {
	t.Parallel()
	f, gate := newIdleFixture(t), machinetest.NewWatchGate("machines")
	f.manage(gate.Config(stage.Sandbox(t).Config))
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
		f.awaitSet(set, func(clusterv1.MachineSetStatus) bool { return true })
		if count := len(living(f.machines())); count != 3 {
			t.Fatalf("%d machines, not 3", count)
		}
	}
	gate.Open()
	f.awaitReplicas(set, 2)
}

// The garbage collector has made the machines orphans, and the controller does not know it yet.
func TestOrphansMissingInTheCache(t *testing.T) {
	t.Parallel()
	f, gate := newIdleFixture(t), machinetest.NewWatchGate("machines")
	var deletes atomic.Int32
	f.manage(gate.Config(sandboxtest.Tap(stage.Sandbox(t).Config,
		func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
			if request.Method == http.MethodDelete && strings.Contains(request.URL.Path, "/machines/") {
				defer deletes.Add(1)
			}
			return send.RoundTrip(request)
		})))
	t.Cleanup(gate.Open) // before the controller is stopped
	set := f.newSet("web", 2)
	f.MustCreate(set)
	f.awaitReplicas(set, 2)
	machinetest.AwaitCollector(t, f, f.newMachine("last", nil))
	gate.Close()
	f.MustDelete(set, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	f.Eventually("the controller deletes a machine of its stale cache", func() bool { return deletes.Load() > 0 })
	gate.Open()
	f.AwaitGone(set)
	if count := len(living(f.machines())); count != 2 {
		t.Errorf("%d machines are left of 2 orphans", count)
	}
}

// living returns those that are not being deleted.
func living(machines map[string]*clusterv1.Machine) []*clusterv1.Machine {
	var found []*clusterv1.Machine
	for _, machine := range machines {
		if machine.DeletionTimestamp == nil {
			found = append(found, machine)
		}
	}
	return found
}

// TestMarkThatMovesBeforeTheDeletion: a user marks another machine after the set has chosen one, and before it deletes
// that one.
func TestMarkThatMovesBeforeTheDeletion(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	var marked []*clusterv1.Machine
	f.manage(machinetest.BeforeFirstDelete(stage.Sandbox(t).Config, func(string) {
		f.MustPatch(marked[0], `{"metadata":{"annotations":{"cluster.x-k8s.io/delete-machine":null}}}`)
		f.MustPatch(marked[1], `{"metadata":{"annotations":{"cluster.x-k8s.io/delete-machine":""}}}`)
	}))
	set := f.newSet("web", 2)
	f.MustCreate(set)
	for _, machine := range f.awaitReplicas(set, 2) {
		marked = append(marked, machine)
	}
	f.MustPatch(marked[0], `{"metadata":{"annotations":{"cluster.x-k8s.io/delete-machine":""}}}`)
	f.scale(set, 1)
	f.Eventually("one machine less", func() bool { return len(f.machines()) == 1 })
	if f.machines()[marked[0].Name] == nil {
		t.Errorf("%s was deleted, which was not marked any more", marked[0].Name)
	}
}
