package capi_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

func TestMachinesWithoutTheirLastHookOvertakeACrowd(t *testing.T) {
	t.Parallel()
	for hook, reason := range map[string]string{
		preDrain + "x":     clusterv1.MachineDeletingWaitingForPreDrainHookReason,
		preTerminate + "x": clusterv1.MachineDeletingWaitingForPreTerminateHookReason,
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			expectOvertaking(t, hook, reason)
		})
	}
}

func expectOvertaking(t *testing.T, hook, reason string) {
	t.Helper()
	namespace, c := stage.Namespace(t), stage.Client(t)
	newMachine := func(name string) client.Object {
		return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: clusterv1.MachineSpec{
				ClusterName: "c", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("data")},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{
					APIGroup: "infra.example.com",
					Kind:     "TestMachine",
					Name:     name,
				},
			}}
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}}
	controlPlane, held := newMachine("cp"), newMachine("held")
	cluster.Spec.InfrastructureRef = controlPlane.(*clusterv1.Machine).Spec.InfrastructureRef
	controlPlane.SetLabels(map[string]string{clusterv1.MachineControlPlaneLabel: "", clusterv1.ClusterNameLabel: "c"})
	held.SetAnnotations(map[string]string{hook: "owner"})
	for _, object := range []client.Object{cluster, controlPlane} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	stage.ExpectOvertaking(t, machinetest.OvertakingMachine{
		Machine: held, New: newMachine, Status: `{"status": {"nodeRef": {"name": "absent"}}}`,
		Unhook: `{"metadata": {"annotations": {"` + hook + `": null}}}`,
		IsHeld: func(m client.Object) bool {
			deleting := meta.FindStatusCondition(m.(*clusterv1.Machine).Status.Conditions,
				clusterv1.MachineDeletingCondition)
			return deleting != nil && deleting.Reason == reason && m.GetAnnotations()[hook] != ""
		},
		SetUp: func(mgr ctrl.Manager) error {
			return capi.SetupWithManager(t.Context(), mgr, capi.Options{Concurrency: 1})
		},
	})
}
