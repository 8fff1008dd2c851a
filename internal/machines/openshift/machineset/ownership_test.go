package machineset_test

import (
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// newMachine returns one that a MachineSet of that name selects.
func (f *fixture) newMachine(name, set string) *machinev1beta1.Machine {
	return &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: f.Namespace, Name: name, Labels: map[string]string{"set": set},
	}}
}

func (f *fixture) ownerOf(machine *machinev1beta1.Machine) string {
	f.Helper()
	f.MustGet(machine)
	if owner := metav1.GetControllerOf(machine); owner != nil {
		return owner.Name
	}
	return ""
}

func TestAdoption(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	early, foreign, other := f.newMachine("early", "web"), f.newMachine("foreign", "web"), f.newMachine("other", "db")
	owner := &corev1.ConfigMap{ObjectMeta: f.Meta("owner")}
	f.MustCreate(owner)
	foreign.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap")),
	}
	f.MustCreate(early, foreign, other)
	set := f.newSet("web", 2)
	f.MustCreate(set)
	f.awaitReplicas(set, 2)
	if count := len(f.machines()); count != 4 { // one was made
		t.Errorf("%d machines, not 4", count)
	}
	for machine, want := range map[*machinev1beta1.Machine]string{early: "web", foreign: "owner", other: ""} {
		if got := f.ownerOf(machine); got != want {
			t.Errorf("%s is controlled by %q, not by %q", machine.Name, got, want)
		}
	}
	// There is a surplus machine: the set must not delete a machine of another controller.
	f.MustPatch(early, `{"metadata":{"annotations":{"machine.openshift.io/delete-machine":"yes"}}}`)
	f.MustPatch(foreign, `{"metadata":{"annotations":{"machine.openshift.io/delete-machine":"yes"}}}`)
	late := f.newMachine("late", "web")
	f.MustCreate(late)
	f.Eventually("the marked machine goes", func() bool { return !names(f.machines())["early"] })
	f.awaitReplicas(set, 2)
	if remaining := names(f.machines()); !remaining["foreign"] || !remaining["late"] || len(remaining) != 4 {
		t.Errorf("remaining machines: got %v, want four, with foreign and late", remaining)
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 2)
	f.MustCreate(set)
	released := &f.awaitReplicas(set, 2)[0]
	f.MustPatch(released, `{"metadata":{"labels":{"set":"quarantine"}}}`)
	f.Eventually("a replacement", func() bool { return len(f.machines()) == 3 && f.ownerOf(released) == "" })
	f.awaitReplicas(set, 2)

	f.MustDelete(set)
	f.Eventually("the others go with their set", func() bool { return len(f.machines()) == 1 })
	if f.ownerOf(released) != "" || released.DeletionTimestamp != nil {
		t.Errorf("released machine: got %+v, want no owner and no deletion", released.ObjectMeta)
	}
}

func TestOverlappingSelectors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first, second := f.newSet("first", 3), f.newSet("second", 2)
	second.Spec.Selector, second.Spec.Template.Labels = first.Spec.Selector, first.Spec.Template.Labels
	f.MustCreate(first, second)
	f.awaitReplicas(first, 3)
	f.awaitReplicas(second, 2)
	f.MustCreate(f.newMachine("orphan", "first")) // both want it, one gets it and has one too many
	f.Eventually("the orphan is taken", func() bool {
		for _, m := range living(f.machines()) {
			if metav1.GetControllerOf(&m) == nil {
				return false
			}
		}
		return len(living(f.machines())) == 5
	})
	f.scale(first, 1)
	f.awaitReplicas(first, 1)
	f.awaitReplicas(second, 2)
	if count := len(f.machines()); count != 3 {
		t.Errorf("%d machines, not 3", count)
	}
}

func TestDeletionOfASet(t *testing.T) {
	t.Parallel()
	for _, policy := range []metav1.DeletionPropagation{
		metav1.DeletePropagationForeground, metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			set := f.newSet("web", 3)
			f.MustCreate(set)
			machines := f.awaitReplicas(set, 3)
			for i := range machines { // a hook holds each
				f.MustPatch(&machines[i], `{"metadata":{"finalizers":[%q]}}`, hold)
			}
			machinetest.AwaitCollector(t, f, f.newMachine("last", ""))
			f.MustDelete(set, client.PropagationPolicy(policy))
			if policy == metav1.DeletePropagationOrphan {
				f.AwaitGone(set)
				if remaining := living(f.machines()); len(remaining) != 3 || f.ownerOf(&remaining[0]) != "" {
					t.Errorf("%d machines remain, owned by %q", len(remaining), f.ownerOf(&remaining[0]))
				}
			} else {
				f.Eventually("all are deleting, and held", func() bool { return len(living(f.machines())) == 0 })
				if count := len(f.machines()); count != 3 {
					t.Errorf("got %d machines, want 3: none replaced, and none deleted despite its hook", count)
				}
			}
			exists := f.Get(t.Context(), client.ObjectKeyFromObject(set), set) == nil
			if exists != (policy == metav1.DeletePropagationForeground) {
				t.Errorf("set exists: got %t with policy %s", exists, policy)
			}
			for i := range machines {
				f.MustPatch(&machines[i], `{"metadata":{"finalizers":null}}`)
			}
			if policy != metav1.DeletePropagationOrphan {
				f.Eventually("no machine remains", func() bool { return len(f.machines()) == 0 })
				f.AwaitGone(set)
			}
		})
	}
}
