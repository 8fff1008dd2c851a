package machineset_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestMachinesAreMadeOfTheTemplate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 2)
	set.Spec.Template.Annotations = map[string]string{"example.com/team": "shop"}
	set.Spec.Template.Spec = machinev1beta1.MachineSpec{
		ObjectMeta: machinev1beta1.ObjectMeta{Labels: map[string]string{"tier": "front"}},
		Taints:     []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}},
		LifecycleHooks: machinev1beta1.LifecycleHooks{
			PreDrain: []machinev1beta1.LifecycleHook{{Name: "MigrateApp", Owner: "app-operator"}},
		},
		ProviderSpec: machinev1beta1.ProviderSpec{Value: &runtime.RawExtension{Raw: []byte(`{"kind":"KwokMachine"}`)}},
	}
	f.MustCreate(set)
	made := f.awaitReplicas(set, 2)
	if len(made) != 2 {
		t.Fatalf("%d machines", len(made))
	}
	f.Eventually("an event", func() bool { return len(f.eventsOf(set, "SuccessfulCreate")) > 0 })
	created := slices.Sorted(maps.Keys(names(made)))
	if notes := f.eventsOf(set, "SuccessfulCreate"); !slices.Equal(notes,
		[]string{"Created machines: " + strings.Join(created, ", ")}) {
		t.Errorf("got events %q, want one about the machines %q", notes, created)
	}
	for _, m := range made {
		if !strings.HasPrefix(m.Name, "web-") {
			t.Errorf("got name %q, want prefix web-", m.Name)
		}
		if diff := cmp.Diff(set.Spec.Template.Spec, m.Spec); diff != "" {
			t.Errorf("spec (-template +machine):\n%s", diff)
		}
		if diff := cmp.Diff(set.Spec.Template.ObjectMeta.Labels, m.Labels); diff != "" {
			t.Errorf("labels (-template +machine):\n%s", diff)
		}
		if diff := cmp.Diff(set.Spec.Template.ObjectMeta.Annotations, m.Annotations); diff != "" {
			t.Errorf("annotations (-template +machine):\n%s", diff)
		}
		want := []metav1.OwnerReference{{
			APIVersion: "machine.openshift.io/v1beta1", Kind: "MachineSet", Name: "web", UID: set.UID,
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		}}
		if diff := cmp.Diff(want, m.OwnerReferences); diff != "" {
			t.Errorf("owners (-want +got):\n%s", diff)
		}
	}
}

func TestReplicasAreOneByDefault(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 0)
	set.Spec.Replicas = nil
	f.MustCreate(set)
	f.awaitReplicas(set, 1)
}

// As kubectl scale does.
func TestScaleSubresource(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 1)
	f.MustCreate(set)
	f.awaitReplicas(set, 1)
	for _, replicas := range []int32{4, 0, 2} {
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
		if err := f.SubResource("scale").Update(t.Context(), set, client.WithSubResourceBody(scale)); err != nil {
			t.Fatal(err)
		}
		if remaining := f.awaitReplicas(set, int(replicas)); len(remaining) != int(replicas) {
			t.Errorf("%d machines after scaling to %d", len(remaining), replicas)
		}
		if err := f.SubResource("scale").Get(t.Context(), set, scale); err != nil || scale.Status.Replicas != replicas {
			t.Errorf("scale subresource: got %d replicas, error %v, want %d", scale.Status.Replicas, err, replicas)
		}
	}
}

func TestA11DeletingMachineIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 3)
	set.Spec.Template.Spec.LifecycleHooks.PreDrain = []machinev1beta1.LifecycleHook{{
		Name:  "MigrateApp",
		Owner: "app-operator",
	}}
	f.MustCreate(set)
	machines := f.awaitReplicas(set, 3)
	for i := range machines {
		f.nodeOf(&machines[i], corev1.ConditionTrue, time.Hour)
	}
	f.awaitSet(set, func(s machinev1beta1.MachineSetStatus) bool { return s.ReadyReplicas == 3 })

	held := &machines[1]
	f.MustPatch(held, `{"metadata":{"finalizers":[%q]}}`, hold)
	f.MustDelete(held)
	f.Eventually("a fourth machine", func() bool { return len(f.machines()) == 4 })
	f.awaitSet(set, func(s machinev1beta1.MachineSetStatus) bool { return s.Replicas == 3 && s.ReadyReplicas == 2 })
	for _, m := range living(f.machines()) {
		if diff := cmp.Diff(set.Spec.Template.Spec.LifecycleHooks, m.Spec.LifecycleHooks); diff != "" {
			t.Errorf("%s does not have the template's hooks (-want +got):\n%s", m.Name, diff)
		}
	}
	f.MustPatch(held, `{"metadata":{"finalizers":null}}`)
	f.Eventually("the held machine is deleted", func() bool { return len(f.machines()) == 3 })
}

// As the cluster autoscaler does: it annotates a machine, and scales down then.
func TestA12MarkedMachineGoesFirst(t *testing.T) {
	t.Parallel()
	for _, annotation := range []string{"machine.openshift.io/delete-machine",
		"machine.openshift.io/cluster-api-delete-machine"} {
		t.Run(annotation[len("machine.openshift.io/"):], func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			set := f.newSet("web", 5)
			f.MustCreate(set)
			machines := f.awaitReplicas(set, 5)
			for i := range machines {
				f.nodeOf(&machines[i], corev1.ConditionTrue, time.Hour)
			}
			for replicas := 4; replicas > 1; replicas-- {
				marked, unmarked := &machines[len(machines)-1], &machines[0]
				f.MustPatch(unmarked, `{"metadata":{"annotations":{%q:""}}}`, annotation) // means nothing
				f.MustPatch(marked, `{"metadata":{"annotations":{%q:"yes"}}}`, annotation)
				f.scale(set, replicas)
				machines = f.awaitReplicas(set, replicas)
				if remaining := names(machines); remaining[marked.Name] || !remaining[unmarked.Name] ||
					len(remaining) != replicas {
					t.Fatalf("%s is marked to be deleted; of %d machines, these remain: %v", marked.Name, replicas,
						remaining)
				}
			}
			// The annotation alone deletes nothing.
			f.MustPatch(&machines[0], `{"metadata":{"annotations":{%q:"yes"}}}`, annotation)
			f.MustPatch(set, `{"metadata":{"labels":{"looked":"again"}},"spec":{"minReadySeconds":1}}`)
			if remaining := f.awaitReplicas(set, 2); len(remaining) != 2 {
				t.Errorf("%d machines remain", len(remaining))
			}
		})
	}
}

func TestMinReadySeconds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 3)
	set.Spec.MinReadySeconds = 3600
	f.MustCreate(set)
	machines := f.awaitReplicas(set, 3)
	f.nodeOf(&machines[0], corev1.ConditionTrue, 2*time.Hour)
	f.nodeOf(&machines[1], corev1.ConditionTrue, time.Minute)
	isReady := func(ready, available int32) func(machinev1beta1.MachineSetStatus) bool {
		return func(s machinev1beta1.MachineSetStatus) bool {
			return s.ReadyReplicas == ready && s.AvailableReplicas == available && s.FullyLabeledReplicas == 3
		}
	}
	f.awaitSet(set, isReady(2, 1))
	f.MustPatch(set, `{"spec":{"minReadySeconds":63}}`) // over in 3 s, and no object changes at its end
	f.awaitSet(set, isReady(2, 2))
	f.MustPatch(set, `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	f.awaitSet(set, func(s machinev1beta1.MachineSetStatus) bool {
		return s.FullyLabeledReplicas == 0 && s.Replicas == 3
	})
}

func TestReadinessOfNodesIsFollowed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 1)
	f.MustCreate(set)
	machines := f.awaitReplicas(set, 1)
	node := f.nodeOf(&machines[0], corev1.ConditionTrue, time.Hour)
	f.awaitSet(set, func(s machinev1beta1.MachineSetStatus) bool {
		return s.ReadyReplicas == 1 && s.AvailableReplicas == 1
	})
	f.MustDelete(node)
	f.awaitSet(set, func(s machinev1beta1.MachineSetStatus) bool { return s.ReadyReplicas == 0 && s.Replicas == 1 })
}
