package machineset_test

import (
	"testing"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
)

// Fields that can change without a new machine are written to the machine, its infrastructure and its bootstrap config,
// and fields that the template no longer has are removed.
func TestTheTemplateReachesItsMachines(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 1)
	f.MustCreate(set)
	f.awaitReplicas(set, 1)
	before := f.one()
	f.MustPatch(before, `{"metadata":{"labels":{"of":"a-person"}}}`)
	f.MustPatch(set, `{"spec":{"template":{
		"metadata":{"labels":{"zone":"a"},"annotations":{"note":"n"}},
		"spec":{"version":"v1.37.0","minReadySeconds":7,"deletion":{"nodeDrainTimeoutSeconds":60,"nodeDeletionTimeoutSeconds":5},
			"readinessGates":[{"conditionType":"Tested"}],"taints":[{"key":"k","effect":"NoSchedule","propagation":"Always"}]}}}}`)
	machine := f.awaitMachine(before.Name, func(m *clusterv1.Machine) bool { return m.Labels["zone"] == "a" })
	spec := machine.Spec
	if machine.UID != before.UID || machine.Annotations["note"] != "n" || machine.Labels["of"] != "a-person" ||
		*spec.MinReadySeconds != 7 ||
		*spec.Deletion.NodeDrainTimeoutSeconds != 60 || *spec.Deletion.NodeDeletionTimeoutSeconds != 5 ||
		len(spec.ReadinessGates) != 1 ||
		len(spec.Taints) != 1 || spec.Version != "" {
		t.Errorf("machine: got %+v, want the same machine with the fields of the template, and without a version",
			machine)
	}
	belongings := []client.Object{&v1alpha1.KwokMachine{}, &v1alpha1.KwokConfig{}}
	for _, object := range belongings {
		f.Must(f.Get(t.Context(), client.ObjectKeyFromObject(machine), object))
		if object.GetLabels()["zone"] != "a" || object.GetAnnotations()["note"] != "n" {
			t.Errorf("%T: labels %v, annotations %v", object, object.GetLabels(), object.GetAnnotations())
		}
	}
	f.MustPatch(set, `{"spec":{"template":{"metadata":{"labels":{"zone":null},"annotations":null}}}}`)
	machine = f.awaitMachine(before.Name, func(m *clusterv1.Machine) bool { return m.Labels["zone"] == "" })
	if _, ok := machine.Annotations["note"]; ok || machine.Labels["of"] != "a-person" {
		t.Errorf("labels %v, annotations %v of the machine", machine.Labels, machine.Annotations)
	}
	f.MustPatch(set, `{"spec":{"template":{"spec":{"taints":null,"minReadySeconds":null,"readinessGates":null}}}}`)
	f.awaitMachine(before.Name, func(m *clusterv1.Machine) bool {
		return m.Spec.MinReadySeconds == nil && len(m.Spec.Taints) == 0 && len(m.Spec.ReadinessGates) == 0
	})
	for _, object := range belongings {
		f.Must(f.Get(t.Context(), client.ObjectKeyFromObject(machine), object))
		if object.GetLabels()["zone"] != "" || object.GetAnnotations()["note"] != "" ||
			object.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation] == "" {
			t.Errorf("%T: labels %v, annotations %v", object, object.GetLabels(), object.GetAnnotations())
		}
	}
}

// The bootstrap data of a machine was used when it started. A change of the template's is for machines that are made
// afterwards, also if labels change with it.
func TestBootstrapDataIsUnchanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set := f.newSet("web", 1)
	set.Spec.Template.Spec.Bootstrap = clusterv1.Bootstrap{DataSecretName: ptr.To("first")}
	f.MustCreate(set)
	f.awaitReplicas(set, 1)
	before := f.one()
	f.MustPatch(set,
		`{"spec":{"template":{"metadata":{"labels":{"zone":"a"}},"spec":{"bootstrap":{"dataSecretName":"second"}}}}}`)
	machine := f.awaitMachine(before.Name, func(m *clusterv1.Machine) bool { return m.Labels["zone"] == "a" })
	if name := ptr.Deref(machine.Spec.Bootstrap.DataSecretName, ""); name != "first" {
		t.Errorf("data of the existing machine: got %q, want first", name)
	}
	f.scale(set, 2)
	for name, machine := range f.awaitReplicas(set, 2) {
		if data := ptr.Deref(machine.Spec.Bootstrap.DataSecretName, ""); name != before.Name && data != "second" {
			t.Errorf("data of the new machine: got %q, want second", data)
		}
	}
}

// A removed hook is restored on a machine, but not during its deletion, when only the timeouts are written.
func TestARemovedHookDoesNotComeBack(t *testing.T) {
	t.Parallel()
	const hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup"
	f := newFixture(t)
	set := f.newSet("web", 1)
	set.Spec.Template.Annotations = map[string]string{held: "", hook: "operator"}
	f.MustCreate(set)
	f.awaitReplicas(set, 1)
	machine := f.one()
	f.MustPatch(machine, `{"metadata":{"annotations":{%q:null}}}`, hook)
	f.awaitMachine(machine.Name, func(m *clusterv1.Machine) bool { return m.Annotations[hook] == "operator" })

	f.MustDelete(machine)
	f.MustPatch(machine, `{"metadata":{"annotations":{%q:null}}}`, hook)
	f.MustPatch(set,
		`{"spec":{"template":{"metadata":{"annotations":{"note":"n"}},"spec":{"deletion":{"nodeDrainTimeoutSeconds":30}}}}}`)
	machine = f.awaitMachine(machine.Name, func(m *clusterv1.Machine) bool {
		return m.Spec.Deletion.NodeDrainTimeoutSeconds != nil && *m.Spec.Deletion.NodeDrainTimeoutSeconds == 30
	})
	if _, ok := machine.Annotations[hook]; ok || machine.Annotations["note"] != "" {
		t.Errorf("annotations of a terminating machine: got %v, want no hook and no note", machine.Annotations)
	}
	f.MustPatch(machine, `{"metadata":{"annotations":{%q:null}}}`, held)
	f.AwaitGone(machine)
}
