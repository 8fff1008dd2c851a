package machineset_test

import (
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/utils/ptr"
)

func TestRestartWhileScaling(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	reach := shared.Sandbox(t).Config
	stop := f.manage(reach)
	set := f.newSet("web", 0)
	f.MustCreate(set)
	f.awaitReplicas(set, 0)
	f.scale(set, 50)
	f.Eventually("some machines", func() bool { return len(f.machines()) > 5 })
	stop()
	stop = f.manage(reach)
	f.awaitReplicas(set, 50)
	if count := len(f.machines()); count != 50 {
		t.Errorf("%d machines, not 50", count)
	}
	f.scale(set, 7)
	f.Eventually("some machines less", func() bool { return len(f.machines()) < 50 })
	stop()
	f.manage(reach)
	f.awaitReplicas(set, 7)
	if count := len(f.machines()); count != 7 {
		t.Errorf("%d machines, not 7", count)
	}
}

func TestEditWhileScaling(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 60)
	f.MustCreate(set)
	f.Eventually("some machines", func() bool { return len(f.machines()) > 3 })
	f.MustPatch(set, `{"spec":{"replicas":12,"template":{"metadata":{"annotations":{"version":"2"}}}}}`)
	f.awaitReplicas(set, 12)
	f.scale(set, 100)
	newest := f.awaitReplicas(set, 100)
	updated := 0
	for i := range newest {
		if newest[i].Annotations["version"] == "2" {
			updated++
		}
	}
	if len(newest) != 100 || updated < 88 {
		t.Errorf("%d machines, not 100; %d of the new template, not 88 or more", len(newest), updated)
	}
}

// eventsOf returns the notes of a set's events of one reason.
func (f *fixture) eventsOf(set *machinev1beta1.MachineSet, reason string) []string {
	f.Helper()
	var notes []string
	for _, event := range f.Events(set.Name, reason) {
		notes = append(notes, event.Note)
	}
	return notes
}

func TestInvalidSetTouchesNoMachine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 2)
	f.MustCreate(set)
	f.awaitReplicas(set, 2)
	f.MustPatch(set, `{"spec":{"replicas":5,"template":{"metadata":{"labels":{"set":"other"}}}}}`)
	invalid := f.awaitSet(set, func(s machinev1beta1.MachineSetStatus) bool { return s.ErrorReason != nil })
	const want = `spec.selector "set=web" does not match the labels in spec.template.metadata.labels: "set=other"`
	if s := invalid.Status; *s.ErrorReason != machinev1beta1.InvalidConfigurationMachineSetError ||
		ptr.Deref(s.ErrorMessage, "") != want || s.Replicas != 2 {
		t.Errorf("%s, %q, %d replicas", *s.ErrorReason, ptr.Deref(s.ErrorMessage, ""), s.Replicas)
	}
	f.Eventually("an event", func() bool { return len(f.eventsOf(set, "ReconcileError")) == 1 })
	if note := f.eventsOf(set, "ReconcileError")[0]; note != want {
		t.Errorf("event: got %q, want %q", note, want)
	}
	if count := len(f.machines()); count != 2 {
		t.Errorf("%d machines, not 2", count)
	}
	f.MustPatch(set, `{"spec":{"template":{"metadata":{"labels":{"set":"web"}}}}}`)
	f.awaitSet(set, func(s machinev1beta1.MachineSetStatus) bool {
		return s.ErrorReason == nil && s.ErrorMessage == nil && s.Replicas == 5
	})
}

func TestRefusedMachines(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	quota := shared.Limit(t, f.Namespace, "machines.machine.openshift.io", 4)
	set := f.newSet("web", 30)
	f.MustCreate(set)
	refused := f.awaitSet(set, func(s machinev1beta1.MachineSetStatus) bool {
		return s.ErrorMessage != nil && s.Replicas == 4 &&
			strings.HasPrefix(*s.ErrorMessage, "create 26 of 26 machines: ")
	})
	const want = `machines.machine.openshift.io is forbidden: exceeded quota: limit`
	if message := *refused.Status.ErrorMessage; refused.Status.ErrorReason != nil || !strings.Contains(message, want) {
		t.Errorf("got message %q, reason %v, want message %q, no reason", message, refused.Status.ErrorReason, want)
	}
	f.Eventually("an event", func() bool { return len(f.eventsOf(set, "ReconcileError")) > 0 })
	if notes := f.eventsOf(set, "ReconcileError"); len(notes) > 3 { // one for each message, not for each try
		t.Errorf("%d events: %q", len(notes), notes)
	}
	f.MustDelete(quota)
	f.awaitSet(set, func(s machinev1beta1.MachineSetStatus) bool { return s.ErrorMessage == nil && s.Replicas == 30 })
}

func TestAThousandMachines(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of the API server's work")
	}
	f := newFixture(t)
	set := f.newSet("web", 1000)
	began := time.Now()
	f.MustCreate(set)
	f.awaitReplicas(set, 1000)
	t.Logf("1,000 machines after %s", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	f.scale(set, 0)
	f.awaitReplicas(set, 0)
	t.Logf("none after %s", time.Since(began).Round(time.Millisecond))
	if count := len(f.machines()); count != 0 {
		t.Errorf("%d machines", count)
	}
}
