package controlplane_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/rolloutpreview"
)

// TestControlPlanes has a control plane for each thing that happens to one.
func TestControlPlanes(t *testing.T) {
	manage(t)
	t.Run("three machines are replaced", testThreeMachines)
	t.Run("two machines are deleted", testDeletedMachines)
	t.Run("only deleted machines are replaced", testOnDelete)
	t.Run("another owner", testAnotherOwner)
	t.Run("a machine too few", testMissingMachine)
	t.Run("no machine", testNoMachine)
	t.Run("a template whose machines fail", testFailingTemplate)
	t.Run("a machine that never joins", testMachineThatNeverJoins)
	t.Run("five machines in three failure domains", testFiveMachines)
	t.Run("a failure domain is removed", testRemovedFailureDomain)
}

// testThreeMachines is the job of an administrator: the machines of a cluster get another size.
func testThreeMachines(t *testing.T) {
	s := newFixture(t)
	s.addThree()
	set := s.newSet("Inactive", "RollingUpdate", "small")
	s.MustCreate(set)
	s.awaitCondition("Progressing", metav1.ConditionFalse, "AllReplicasUpdated", "")
	s.MustPatch(set,
		`{"spec":{"template":{"machines_v1beta1_machine_openshift_io":{"spec":{"providerSpec":{"value":{"spec":{"node":{"labels":{"size":"large"}}}}}}}}}}`)
	seen := s.awaitCondition("Progressing", metav1.ConditionTrue, "NeedsUpdateReplicas",
		"Observed 3 replica(s) in need of update")
	if status := seen.Status; status.Replicas != 3 || status.ReadyReplicas != 3 || status.UpdatedReplicas != 0 ||
		status.UnavailableReplicas != 0 {
		t.Errorf("before the update: got %+v, want 3 ready replicas, none updated or unavailable", status)
	}
	if owned := s.owned(); len(owned) > 0 || len(s.machines()) != 3 {
		t.Errorf("inactive set: got %d machines, of which it owns %q; want 3 and none", len(s.machines()), owned)
	}

	foreseen := s.previewed()
	watched := s.watchReady()
	s.MustPatch(set, `{"spec":{"state":"Active"}}`)
	seen = s.awaitCondition("Progressing", metav1.ConditionFalse, "AllReplicasUpdated", "")
	fewest, most := watched()
	if fewest < 3 || most > 4 {
		t.Errorf("there were %d to %d machines that run", fewest, most)
	}
	s.awaitCondition("Available", metav1.ConditionTrue, "AllReplicasAvailable", "")
	s.awaitCondition("Degraded", metav1.ConditionFalse, "AsExpected", "")
	if status := seen.Status; status.Replicas != 3 || status.UpdatedReplicas != 3 {
		t.Errorf("after the update: got %+v, want 3 replicas, all updated", status)
	}
	s.expectRacks("a:large b:large c:large")
	for i, name := range s.owned() {
		if !regexp.MustCompile(`^shop-master-[a-z0-9]{5}-[012]$`).MatchString(name) {
			t.Errorf("machine %d is called %s", i, name)
		}
		s.AwaitEvent("cluster", "Created", "created machine: "+name)
	}
	if diff := cmp.Diff(foreseen, s.done()); diff != "" {
		t.Errorf("the preview differs from the actions (-preview +done):\n%s", diff)
	}
	s.AwaitEvent("cluster", "Deleted", "deleted machine: "+s.name("b"))
	for _, state := range []string{`"Inactive"`, `null`} { // which is the default, Inactive
		deactivate := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"state":`+state+`}}`))
		if err := s.Patch(t.Context(), set, deactivate); err == nil ||
			!strings.Contains(err.Error(), "state cannot be changed once Active") {
			t.Errorf("patch of an active set to state %s: got error %v, want a refusal", state, err)
		}
	}
	s.testRelease(set)
}

// previewed returns the steps of a preview: the indexes of machines that are created, and the names of those that are
// deleted.
func (f *fixture) previewed() []string {
	f.Helper()
	preview, err := rolloutpreview.Make(f.Context(), stage.Connect(f), rolloutpreview.Query{
		Kind: rolloutpreview.ControlPlaneMachineSetKind, Namespace: f.Namespace, Name: "cluster",
	})
	f.Must(err)
	var steps []string
	for _, step := range preview.(*rolloutpreview.ControlPlanePreview).Steps {
		if step.Action == rolloutpreview.CreateMachine {
			steps = append(steps, fmt.Sprint("create ", *step.Index))
		} else {
			steps = append(steps, "delete "+step.Machine)
		}
	}
	return steps
}

// done returns the steps that the set has done, by its events, in the same words.
func (f *fixture) done() []string {
	f.Helper()
	happened := append(f.Events("cluster", "Created"), f.Events("cluster", "Deleted")...)
	slices.SortFunc(happened, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	var steps []string
	for _, event := range happened {
		name := event.Note[strings.LastIndex(event.Note, " ")+1:]
		if event.Reason == "Created" {
			steps = append(steps, "create "+name[strings.LastIndex(name, "-")+1:])
		} else {
			steps = append(steps, "delete "+name)
		}
	}
	return steps
}

// testRelease deletes the set, whose machines stay.
func (f *fixture) testRelease(set *machinev1.ControlPlaneMachineSet) {
	f.Helper()
	before := f.machines()
	f.MustDelete(set)
	f.AwaitGone(set)
	after := f.machines()
	if owned := f.owned(); len(owned) > 0 {
		f.Errorf("%q are still owned", owned)
	}
	for i := range before {
		if after[i].UID != before[i].UID || after[i].DeletionTimestamp != nil {
			f.Errorf("machine %s did not stay", before[i].Name)
		}
	}
}

// watchReady counts running machines until the function that it returns is called, which returns the fewest and the
// most.
func (f *fixture) watchReady() func() (fewest, most int) {
	fewest, most := 99, 0
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			var list machinev1beta1.MachineList
			if err := f.List(f.Context(), &list, client.InNamespace(f.Namespace)); err == nil {
				running := len(slices.DeleteFunc(list.Items, func(m machinev1beta1.Machine) bool {
					return m.DeletionTimestamp != nil || m.Status.Phase == nil ||
						*m.Status.Phase != machinev1beta1.PhaseRunning
				}))
				fewest, most = min(fewest, running), max(most, running)
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() (int, int) {
		close(stop)
		<-ended
		return fewest, most
	}
}

// testDeletedMachines, of which two are deleted at once, and one is held by a hook.
func testDeletedMachines(t *testing.T) {
	s := newFixture(t)
	s.addThree()
	s.MustPatch(s.machine("a"),
		`{"spec":{"lifecycleHooks":{"preDrain":[{"name":"Quorum","owner":"etcd"}]},"metadata":{}},
		"metadata":{"annotations":{"pre-drain.hook.machine.runlevel.dev/Quorum":"its member has no replacement"}}}`)
	s.MustCreate(s.newSet("Active", "RollingUpdate", "small"))
	s.awaitCondition("Progressing", metav1.ConditionFalse, "AllReplicasUpdated", "")
	s.Eventually("the machines are adopted", func() bool { return len(s.owned()) == 3 })
	s.deleteMachine("a")
	s.deleteMachine("b")
	s.awaitCondition("Progressing", metav1.ConditionTrue, "ExcessReplicas",
		"machine "+s.name("a")+" is being deleted (held by the hook Quorum of etcd: its member has no replacement)")
	s.expectRacks("a:small a:small b:small c:small")
	s.MustPatch(s.machine("a"), `{"spec":{"lifecycleHooks":null}}`)
	s.Eventually("three machines", func() bool { return s.racks() == "a:small b:small c:small" })
	s.awaitCondition("Progressing", metav1.ConditionFalse, "AllReplicasUpdated", "")
}

// testAnotherOwner is for a machine of another controller.
func testAnotherOwner(t *testing.T) {
	s := newFixture(t)
	s.addThree()
	owner := &corev1.ConfigMap{ObjectMeta: s.Meta("owner")}
	s.MustCreate(owner)
	s.MustPatch(s.machine("b"),
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q,"controller":true}]}}`, owner.UID)
	s.MustCreate(s.newSet("Active", "RollingUpdate", "large"))
	s.awaitCondition("Degraded", metav1.ConditionTrue, "MachinesAlreadyOwned", s.name("b"))
	s.awaitCondition("Progressing", metav1.ConditionFalse, "OperatorDegraded", "")
	if owned := s.owned(); len(owned) > 0 || len(s.machines()) != 3 {
		t.Errorf("it has adopted %q", owned)
	}
}

// testMissingMachine is for a set of three while there are two machines, and then one in another rack.
func testMissingMachine(t *testing.T) {
	s := newFixture(t)
	s.addMachines(map[string]string{"a": kwokValue("a", "small"), "b": kwokValue("b", "small")})
	s.MustCreate(s.newSet("Active", "RollingUpdate", "small"))
	s.awaitCondition("Degraded", metav1.ConditionTrue, "ReplicasMismatch",
		"control plane machine set replicas (3) does not match the current number of control plane machines (2)")
	s.addMachines(map[string]string{"c": kwokValue("d", "small")})
	s.awaitCondition("Degraded", metav1.ConditionTrue, "UnknownFailureDomains", s.name("c"))
}

// testNoMachine is for a set without machines.
func testNoMachine(t *testing.T) {
	s := newFixture(t)
	s.MustCreate(s.newSet("Inactive", "RollingUpdate", "small"))
	s.awaitCondition("Degraded", metav1.ConditionTrue, "NoReadyMachines", "")
	s.awaitCondition("Available", metav1.ConditionFalse, "UnavailableReplicas", "Missing 3 available replica(s)")
}

// testFailingTemplate is for a template whose machines fail until it is corrected.
func testFailingTemplate(t *testing.T) {
	s := newFixture(t)
	s.addThree()
	set := s.newSet("Active", "RollingUpdate", "small")
	s.MustCreate(set)
	s.awaitCondition("Progressing", metav1.ConditionFalse, "AllReplicasUpdated", "")
	s.setMistake(set, `"yes"`)
	s.awaitCondition("Degraded", metav1.ConditionTrue, "FailedReplacement", "mistake")
	s.expectRacks("a:small a:small b:small c:small")
	s.setMistake(set, `null`)
	s.awaitCondition("Progressing", metav1.ConditionFalse, "AllReplicasUpdated", "")
	s.expectRacks("a:small b:small c:small")
}

// setMistake sets a field in the infrastructure object of the template that no object has.
func (f *fixture) setMistake(set *machinev1.ControlPlaneMachineSet, mistake string) {
	f.Helper()
	f.MustPatch(set,
		`{"spec":{"template":{"machines_v1beta1_machine_openshift_io":{"spec":{"providerSpec":{"value":{"mistake":%s}}}}}}}`, mistake)
}

// TestUnmanagedNodes has a node of the control plane without a Machine, beside which nothing is replaced.
func TestUnmanagedNodes(t *testing.T) {
	manage(t)
	s := &fixture{stage.NewFixture(t)}
	s.addThree()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   s.name("by-hand"),
		Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""},
	}}
	s.MustCreate(node)
	s.DeleteAfterwards(node)
	s.MustCreate(s.newSet("Active", "RollingUpdate", "large"))
	s.awaitCondition("Degraded", metav1.ConditionTrue, "UnmanagedNodes", "Found 1 unmanaged node(s): "+node.Name)
	if owned := s.owned(); len(owned) > 0 {
		t.Errorf("it has adopted %q", owned)
	}
	s.MustDelete(node)
	s.Eventually("all are replaced", func() bool { return s.racks() == "a:large b:large c:large" })
}
