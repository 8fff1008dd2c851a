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

var stage = machinetest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }

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
	namespace, c := stage.Namespace(t), stage.Client(t)
	stage.ManageIn(t, namespace, stage.Sandbox(t).Config, func(mgr ctrl.Manager) error {
		return openshift.SetupWithManager(t.Context(), mgr, openshift.MachineOptions{LongestWait: time.Second})
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	m := &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a1"},
		Spec: machinev1beta1.MachineSpec{
			ProviderSpec: machinev1beta1.ProviderSpec{Value: &runtime.RawExtension{Raw: []byte(external)}},
			LifecycleHooks: machinev1beta1.LifecycleHooks{
				PreDrain:     []machinev1beta1.LifecycleHook{{Name: "MigrateApp", Owner: "app-op"}},
				PreTerminate: []machinev1beta1.LifecycleHook{{Name: "Detach", Owner: "storage-op"}},
			},
		},
	}
	for _, object := range []client.Object{node, m} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	phase := func(want string) func(*machinev1beta1.Machine) bool {
		return func(m *machinev1beta1.Machine) bool { return m.Status.Phase != nil && *m.Status.Phase == want }
	}
	m = stage.AwaitMachine(t, namespace, "a1", phase(machinev1beta1.PhaseProvisioning))
	drainable := conditionOf(m, machinev1beta1.MachineDrainable)
	if drainable.Message != "Drain operation currently blocked by: [{Name:MigrateApp Owner:app-op}]" || drainable.Reason != "HookPresent" {
		t.Errorf("Drainable is %+v", drainable)
	}
	instance := &unstructured.Unstructured{}
	instance.SetAPIVersion("infrastructure.runlevel.dev/v1alpha1")
	instance.SetKind("ExternalMachine")
	key := client.ObjectKeyFromObject(m)
	machinetest.Await(t, c, instance, key, func(*unstructured.Unstructured) bool { return true })
	m.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: node.Name}
	if err := c.Status().Patch(t.Context(), m, client.RawPatch("application/merge-patch+json",
		[]byte(`{"status":{"nodeRef":{"kind":"Node","name":"`+node.Name+`"}}}`))); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m = stage.AwaitMachine(t, namespace, "a1", phase(machinev1beta1.PhaseDeleting))
	if drained := conditionOf(m, machinev1beta1.MachineDrained); drained.Status != "" {
		t.Errorf("a hook holds it, and Drained is %+v", drained)
	}
	patch := func(json string) {
		t.Helper()
		if err := c.Patch(t.Context(), m, client.RawPatch("application/merge-patch+json", []byte(json))); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"spec":{"lifecycleHooks":{"preDrain":null}}}`)
	stage.AwaitMachine(t, namespace, "a1", func(m *machinev1beta1.Machine) bool {
		return conditionOf(m, machinev1beta1.MachineDrained).Message == "Drain finished successfully"
	})
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil || !node.Spec.Unschedulable {
		t.Errorf("the node is not cordoned: %v", err)
	}
	if err := c.Get(t.Context(), key, instance); err != nil || instance.GetDeletionTimestamp() != nil {
		t.Errorf("the infrastructure is deleted in spite of a hook: %v", err)
	}
	patch(`{"spec":{"lifecycleHooks":{"preTerminate":null}}}`)
	machinetest.AwaitGone(t, c, m, key)
	machinetest.AwaitGone(t, c, node, client.ObjectKeyFromObject(node))
}
