package machineset_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
)

func TestMachinesFollowTheTemplates(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 1)
	set.Spec.Template.Spec.Version = "v1.36.0"
	set.Spec.Template.Annotations = map[string]string{"pre-drain.delete.hook.machine.cluster.x-k8s.io/a": "b"}
	f.MustCreate(set)
	set = f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool { return s.Replicas != nil && *s.Replicas == 1 })
	if set.Status.Selector != "set=web" || !slices.Contains(set.Finalizers, clusterv1.MachineSetFinalizer) ||
		set.Labels[clusterv1.ClusterNameLabel] != "c" || len(set.OwnerReferences) != 1 ||
		set.OwnerReferences[0].Kind != "Cluster" {
		t.Errorf("set: got %+v, want selector set=web, a finalizer, and the Cluster c as owner and label", set)
	}
	machine := f.one()
	if !strings.HasPrefix(machine.Name, "web-") || !metav1.IsControlledBy(machine, set) ||
		machine.Spec.Version != "v1.36.0" ||
		machine.Labels[clusterv1.ClusterNameLabel] != "c" || machine.Labels[clusterv1.MachineSetNameLabel] != "web" ||
		machine.Annotations["pre-drain.delete.hook.machine.cluster.x-k8s.io/a"] != "b" {
		t.Errorf("machine: got %+v, want web-… of the set, with its version, labels and annotation", machine)
	}
	f.Eventually("an event with the name", func() bool {
		var events eventsv1.EventList
		f.MustList(&events)
		return slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
			return e.Reason == "SuccessfulCreate" && e.Note == "Created machines: "+machine.Name
		})
	})
	infrastructure, config := &v1alpha1.KwokMachine{}, &v1alpha1.KwokConfig{}
	for object, template := range map[client.Object]string{infrastructure: "small", config: "plain"} {
		f.Must(f.Get(t.Context(), client.ObjectKeyFromObject(machine), object))
		owners := object.GetOwnerReferences()
		if object.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation] != template || len(owners) != 1 ||
			owners[0].UID != set.UID ||
			metav1.GetControllerOf(object) != nil || object.GetLabels()["set"] != "web" ||
			object.GetLabels()[clusterv1.ClusterNameLabel] != "c" {
			t.Errorf("%T: %+v", object, object)
		}
	}
	if infrastructure.Labels["size"] != "small" || config.Spec.Data != "#cloud-config" ||
		machine.Spec.InfrastructureRef.Kind != "KwokMachine" || machine.Spec.Bootstrap.ConfigRef.Kind != "KwokConfig" {
		t.Errorf("infrastructure %+v, config %+v, machine %+v", infrastructure, config, machine.Spec)
	}
}

func TestMachineNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 2)
	set.Spec.MachineNaming.Template = strings.Repeat("long-", 15) + "{{ .cluster.name }}-{{ .random }}"
	f.MustCreate(set)
	for name := range f.awaitReplicas(set, 2) {
		if !strings.HasPrefix(name, "long-long-") || len(name) != 63 {
			t.Errorf("%s has %d characters", name, len(name))
		}
	}
}

// In Cluster API a machine counts as a replica during its deletion: the next one is created after that.
func TestHeldMachineIsReplacedAfterItsDeletion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 3)
	set.Spec.Template.Annotations = map[string]string{held: ""}
	f.MustCreate(set)
	before := f.awaitReplicas(set, 3)
	first := before[slices.Sorted(maps.Keys(before))[0]]
	f.MustDelete(first)
	for range 3 { // each has the controller look again
		f.MustPatch(set, `{"spec":{"template":{"spec":{"minReadySeconds":%d}}}}`, len(f.machines()))
		f.awaitReplicas(set, 3)
		if now := f.machines(); len(now) != 3 || now[first.Name] == nil {
			t.Fatalf("%d machines while one is held", len(now))
		}
	}
	f.MustPatch(first, `{"metadata":{"annotations":{%q:null}}}`, held)
	f.AwaitGone(first)
	f.Eventually("a replacement", func() bool { return len(f.machines()) == 3 })
}

// If a set is scaled down during the deletion of a machine, it deletes no other machine.
func TestTerminatingMachineCountsInAScaleDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 3)
	set.Spec.Template.Annotations = map[string]string{held: ""}
	f.MustCreate(set)
	machines := f.awaitReplicas(set, 3)
	last := machines[slices.Sorted(maps.Keys(machines))[2]]
	f.MustDelete(last)
	f.scale(set, 2)
	f.awaitSet(set, func(s clusterv1.MachineSetStatus) bool {
		return hasCondition(s, clusterv1.ScalingDownCondition, metav1.ConditionTrue,
			"Scaling down from 3 to 2 replicas")
	})
	f.MustPatch(last, `{"metadata":{"annotations":{%q:null}}}`, held)
	f.awaitReplicas(set, 2)
	for _, machine := range f.machines() {
		if machine.DeletionTimestamp != nil || machine.Name == last.Name {
			t.Errorf("%s is deleted", machine.Name)
		}
	}
}

// The annotation's value does not count, and alone it deletes nothing.
func TestMarkedMachineIsDeletedFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 3)
	f.MustCreate(set)
	machines := f.awaitReplicas(set, 3)
	marked := machines[slices.Sorted(maps.Keys(machines))[2]]
	f.MustPatch(marked, `{"metadata":{"annotations":{"cluster.x-k8s.io/delete-machine":""}}}`)
	f.MustPatch(set, `{"spec":{"template":{"spec":{"minReadySeconds":1}}}}`) // has the controller look again
	f.awaitReplicas(set, 3)
	if len(f.machines()) != 3 {
		t.Fatal("the annotation alone deleted a machine")
	}
	f.scale(set, 2)
	if remaining := f.awaitReplicas(set, 2); remaining[marked.Name] != nil || len(remaining) != 2 {
		t.Errorf("%s was marked, and is not deleted", marked.Name)
	}
}

func TestTheScaleSubresource(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 1)
	f.MustCreate(set)
	f.awaitReplicas(set, 1)
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 2}}
	if err := f.SubResource("scale").Update(t.Context(), set, client.WithSubResourceBody(scale)); err != nil {
		t.Fatal(err)
	}
	f.awaitReplicas(set, 2)
	if err := f.SubResource("scale").Get(t.Context(), set, scale); err != nil || scale.Status.Replicas != 2 ||
		scale.Status.Selector != "set=web" {
		t.Errorf("%+v, %v", scale.Status, err)
	}
}

func TestRestartWhileScaling(t *testing.T) {
	t.Parallel()
	f := newIdleFixture(t)
	reach := stage.Sandbox(t).Config
	stop := f.manage(reach)
	set := f.newSet("web", 0)
	f.MustCreate(set)
	f.awaitReplicas(set, 0)
	f.scale(set, 50)
	f.Eventually("some machines", func() bool { return len(f.machines()) > 5 })
	stop()
	stop = f.manage(reach)
	if count := len(f.awaitReplicas(set, 50)); count != 50 {
		t.Errorf("%d machines, not 50", count)
	}
	f.Eventually("no leftovers", func() bool { return len(f.infrastructure()) == 50 })
	f.scale(set, 7)
	f.Eventually("some machines less", func() bool { return len(f.machines()) < 50 })
	stop()
	f.manage(reach)
	if count := len(f.awaitReplicas(set, 7)); count != 7 {
		t.Errorf("%d machines, not 7", count)
	}
}

// hasCondition reports whether a status has a condition with that text in its message.
func hasCondition(s clusterv1.MachineSetStatus, kind string, status metav1.ConditionStatus, text string) bool {
	return slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool {
		return c.Type == kind && c.Status == status && strings.Contains(c.Message, text)
	})
}
