package openshift_test

import (
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/openshift"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

func TestMachinesWithoutTheirLastHookOvertakeACrowd(t *testing.T) {
	t.Parallel()
	owned := []machinev1beta1.LifecycleHook{{Name: "Detach", Owner: "storage-op"}}
	for stage, hooks := range map[deletion.Stage]machinev1beta1.LifecycleHooks{
		deletion.BeforeDrain: {PreDrain: owned}, deletion.BeforeTerminate: {PreTerminate: owned},
	} {
		t.Run(string(stage), func(t *testing.T) {
			t.Parallel()
			expectOvertaking(t, stage, hooks)
		})
	}
}

func expectOvertaking(t *testing.T, heldIn deletion.Stage, hooks machinev1beta1.LifecycleHooks) {
	t.Helper()
	namespace := shared.Namespace(t)
	newMachine := func(name string) client.Object {
		m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		m.Spec.ProviderSpec.Value = &runtime.RawExtension{Raw: []byte(external)}
		return m
	}
	held := newMachine("held")
	held.(*machinev1beta1.Machine).Spec.LifecycleHooks = hooks
	shared.ExpectOvertaking(t, machinetest.OvertakingMachine{
		Machine: held, New: newMachine, Status: `{"status": {"nodeRef": {"kind": "Node", "name": "gone"}}}`,
		Unhook: `{"spec": {"lifecycleHooks": null}}`,
		IsHeld: func(object client.Object) bool {
			m := object.(*machinev1beta1.Machine)
			stage, _ := deletion.StageOpenShift(m)
			return stage == heldIn && ptr.Deref(m.Status.Phase, "") == machinev1beta1.PhaseDeleting
		},
		SetUp: func(mgr ctrl.Manager) error {
			return openshift.SetupWithManager(t.Context(), mgr,
				openshift.Options{Concurrency: 1, Infrastructure: newScriptedProvider()})
		},
	})
}
