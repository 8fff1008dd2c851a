package openshift_test

import (
	"os"
	"slices"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/openshift"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var shared = machinetest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// external is a template of infrastructure that the test provides.
const external = `{"apiVersion": "infrastructure.runlevel.dev/v1alpha1", "kind": "ExternalMachine", "spec": {}}`

func conditionOf(m *machinev1beta1.Machine, kind machinev1beta1.ConditionType) machinev1beta1.Condition {
	i := slices.IndexFunc(m.Status.Conditions, func(c machinev1beta1.Condition) bool { return c.Type == kind })
	if i < 0 {
		return machinev1beta1.Condition{}
	}
	return m.Status.Conditions[i]
}

// TestA2HooksAreReleasedInOrder holds a machine by both hooks, and releases one after the other.
func TestA2HooksAreReleasedInOrder(t *testing.T) {
	t.Parallel()
	f := shared.NewFixture(t)
	f.Manage(func(mgr ctrl.Manager) error {
		return openshift.SetupWithManager(t.Context(), mgr, openshift.Options{LongestWait: time.Second})
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace}}
	m := &machinev1beta1.Machine{
		ObjectMeta: f.Meta("a1"),
		Spec: machinev1beta1.MachineSpec{
			ProviderSpec: machinev1beta1.ProviderSpec{Value: &runtime.RawExtension{Raw: []byte(external)}},
			LifecycleHooks: machinev1beta1.LifecycleHooks{
				PreDrain:     []machinev1beta1.LifecycleHook{{Name: "MigrateApp", Owner: "app-op"}},
				PreTerminate: []machinev1beta1.LifecycleHook{{Name: "Detach", Owner: "storage-op"}},
			},
		},
	}
	f.MustCreate(node, m)
	phase := func(want string) func(*machinev1beta1.Machine) bool {
		return func(m *machinev1beta1.Machine) bool { return m.Status.Phase != nil && *m.Status.Phase == want }
	}
	m = f.AwaitMachine("a1", phase(machinev1beta1.PhaseProvisioning))
	drainable := conditionOf(m, machinev1beta1.MachineDrainable)
	if drainable.Message != "Drain operation currently blocked by: [{Name:MigrateApp Owner:app-op}]" ||
		drainable.Reason != "HookPresent" {
		t.Errorf("Drainable is %+v", drainable)
	}
	instance := &unstructured.Unstructured{}
	instance.SetAPIVersion("infrastructure.runlevel.dev/v1alpha1")
	instance.SetKind("ExternalMachine")
	key := client.ObjectKeyFromObject(m)
	machinetest.Await(f, f, instance, key, func(*unstructured.Unstructured) bool { return true })
	f.MustPatchStatus(m, `{"status":{"nodeRef":{"kind":"Node","name":%q}}}`, node.Name)
	f.MustDelete(m)
	m = f.AwaitMachine("a1", phase(machinev1beta1.PhaseDeleting))
	if drained := conditionOf(m, machinev1beta1.MachineDrained); drained.Status != "" {
		t.Errorf("Drained beside a hook: got %+v, want none", drained)
	}
	f.MustPatch(m, `{"spec":{"lifecycleHooks":{"preDrain":null}}}`)
	f.AwaitMachine("a1", func(m *machinev1beta1.Machine) bool {
		return conditionOf(m, machinev1beta1.MachineDrained).Message == "Drain finished successfully"
	})
	if err := f.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil || !node.Spec.Unschedulable {
		t.Errorf("got an unschedulable node: %t, error %v; want it cordoned", node.Spec.Unschedulable, err)
	}
	if err := f.Get(t.Context(), key, instance); err != nil || instance.GetDeletionTimestamp() != nil {
		t.Errorf("infrastructure beside a hook: got deletion time %v, error %v; want neither",
			instance.GetDeletionTimestamp(), err)
	}
	f.MustPatch(m, `{"spec":{"lifecycleHooks":{"preTerminate":null}}}`)
	f.AwaitGone(m)
	f.AwaitGone(node)
}
