package controlplane_test

import (
	"slices"
	"strings"
	"testing"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
)

// changeValue changes fields of the template's infrastructure object, by a JSON merge patch.
func (f *fixture) changeValue(set *machinev1.ControlPlaneMachineSet, fields string) {
	f.Helper()
	f.MustPatch(set,
		`{"spec":{"template":{"machines_v1beta1_machine_openshift_io":{"spec":{"providerSpec":{"value":%s}}}}}}`,
		fields)
}

// settle creates an active set, waits until it has adopted its machines, and returns it with their names.
func (f *fixture) settle(set *machinev1.ControlPlaneMachineSet) []string {
	f.Helper()
	f.MustCreate(set)
	f.awaitCondition("Progressing", metav1.ConditionFalse, "AllReplicasUpdated", "")
	return f.owned()
}

// kept returns how many machines with these names exist.
func (f *fixture) kept(names []string) int {
	f.Helper()
	return len(slices.DeleteFunc(f.owned(), func(name string) bool { return !slices.Contains(names, name) }))
}

// testOnDelete replaces only machines that are deleted by a user: one, and then two at once.
func testOnDelete(t *testing.T) {
	s := newFixture(t)
	s.addThree()
	set := s.newSet("Active", "OnDelete", "large")
	s.MustCreate(set)
	s.awaitCondition("Progressing", metav1.ConditionTrue, "NeedsUpdateReplicas",
		"machine "+s.name("b")+" needs an update: delete it to have it replaced")
	s.deleteMachine("b")
	s.awaitCondition("Progressing", metav1.ConditionTrue, "NeedsUpdateReplicas",
		"Observed 2 replica(s) in need of update")
	s.Eventually("one is replaced", func() bool { return s.racks() == "a:small b:large c:small" })
	if owned := s.owned(); len(owned) != 3 {
		t.Errorf("machines of the set: got %q, want 3", owned)
	}
	s.deleteMachine("a")
	s.deleteMachine("c")
	s.awaitCondition("Progressing", metav1.ConditionFalse, "AllReplicasUpdated", "")
	s.expectRacks("a:large b:large c:large")
	for _, owned := range s.owned() {
		s.AwaitEvent("cluster", "Created", "created machine: "+owned)
	}
	if deleted := s.Events("cluster", "Deleted"); len(deleted) > 0 {
		t.Errorf("deletions by the set: got %v, want none", deleted)
	}
	before := s.uids()
	s.MustDelete(set, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	s.AwaitGone(set)
	s.expectReleased(before)
}

// testMachineThatNeverJoins has machines whose start fails, without an end. The first is deleted, and the start of the
// one in its place succeeds after a while; then the template is corrected.
func testMachineThatNeverJoins(t *testing.T) {
	s := newFixture(t)
	s.addThree()
	set := s.newSet("Active", "RollingUpdate", "small")
	old := s.settle(set)
	watched := s.watchReady()
	s.changeValue(set, `{"spec":{"startFailure":{"message":"no address is left"}}}`)
	first := s.awaitNeverJoined(old, "0")
	s.MustDelete(&machinev1beta1.Machine{ObjectMeta: s.Meta(first)})
	second := s.awaitNeverJoined(append(old, first), "0")

	s.MustPatch(&v1alpha1.KwokMachine{ObjectMeta: s.Meta(second)}, `{"spec":{"startFailure":null}}`)
	s.AwaitGone(s.machine("a"))
	third := s.awaitNeverJoined(append(old, second), "1")
	if kept := s.kept(append(old, second)); kept != 3 {
		t.Errorf("%d of the machines that have joined are left: %v", kept, s.owned())
	}

	s.changeValue(set, `{"spec":{"startFailure":null,"node":{"labels":{"size":"large"}}}}`)
	s.awaitCondition("Progressing", metav1.ConditionFalse, "AllReplicasUpdated", "")
	if fewest, most := watched(); fewest < 3 || most > 4 {
		t.Errorf("there were %d to %d machines that run", fewest, most)
	}
	if racks := s.racks(); racks != "a:large b:large c:large" || s.kept(append(old, second, third)) != 0 {
		t.Errorf("the machines are in %s: %v", racks, s.owned())
	}
}

// awaitNeverJoined waits until there is one machine besides others, which has an index and is named by the condition.
// Nothing else is done then.
func (f *fixture) awaitNeverJoined(others []string, index string) (name string) {
	f.Helper()
	f.Eventually("another machine", func() bool {
		fresh := slices.DeleteFunc(f.owned(), func(name string) bool { return slices.Contains(others, name) })
		if len(fresh) != 1 {
			return false
		}
		name = fresh[0]
		return true
	})
	if !strings.HasSuffix(name, "-"+index) {
		f.Errorf("%s is to have the index %s", name, index)
	}
	f.awaitCondition("Progressing", metav1.ConditionTrue, "NeedsUpdateReplicas",
		"machine "+name+" is not ready (Provisioning)")
	f.awaitCondition("Available", metav1.ConditionTrue, "AllReplicasAvailable", "")
	return name
}

// newFive makes five machines in three racks, and a set that has adopted them.
func (f *fixture) newFive() (set *machinev1.ControlPlaneMachineSet, names []string) {
	f.Helper()
	f.addMachines(map[string]string{
		"a": kwokValue("a", "small"), "b": kwokValue("b", "small"), "c": kwokValue("c", "small"),
		"d": kwokValue("b", "small"), "e": kwokValue("a", "small"),
	})
	set = f.newSet("Active", "RollingUpdate", "small")
	set.Spec.Replicas = new(int32(5))
	return set, f.settle(set)
}

// testFiveMachines are replaced, each in its failure domain.
func testFiveMachines(t *testing.T) {
	s := newFixture(t)
	set, old := s.newFive()
	if racks := s.racks(); racks != "a:small a:small b:small b:small c:small" || s.kept(old) != 5 {
		t.Errorf("before: the machines are in %s: %v", racks, s.owned())
	}
	watched := s.watchReady()
	s.changeValue(set, `{"spec":{"node":{"labels":{"size":"large"}}}}`)
	s.awaitCondition("Progressing", metav1.ConditionFalse, "AllReplicasUpdated", "")
	if fewest, most := watched(); fewest < 5 || most > 6 {
		t.Errorf("there were %d to %d machines that run", fewest, most)
	}
	if racks := s.racks(); racks != "a:large a:large b:large b:large c:large" || s.kept(old) != 0 {
		t.Errorf("after: the machines are in %s: %v", racks, s.owned())
	}
}

// testRemovedFailureDomain makes the two machines of a rack move to the others, and no other machine.
func testRemovedFailureDomain(t *testing.T) {
	s := newFixture(t)
	set, old := s.newFive()
	watched := s.watchReady()
	s.changeValue(set, `{"failureDomains":[{"node":{"labels":{"rack":"b"}}},{"node":{"labels":{"rack":"c"}}}]}`)
	s.awaitCondition("Progressing", metav1.ConditionFalse, "AllReplicasUpdated", "")
	if fewest, most := watched(); fewest < 5 || most > 6 {
		t.Errorf("there were %d to %d machines that run", fewest, most)
	}
	if racks := s.racks(); racks != "b:small b:small b:small c:small c:small" &&
		racks != "b:small b:small c:small c:small c:small" {
		t.Errorf("got machines in %s, want two or three in b, the others in c", racks)
	}
	if kept := s.kept(old); kept != 3 {
		t.Errorf("%d machines were kept of %v: %v", kept, old, s.owned())
	}
}
