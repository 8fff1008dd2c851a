package manager

import (
	"testing"
	"time"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	controlplanev1alpha1 "github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/program/clusteroperator"
)

// TestStanding tells of machines what the ClusterOperator's conditions say.
func TestStanding(t *testing.T) {
	failed := machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "m-1"}}
	failed.Status.Phase = ptr.To(machinev1beta1.PhaseFailed)
	going := machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "m-2", DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)},
		Labels: map[string]string{"machine.openshift.io/cluster-api-machine-role": "master"},
	}}
	got := statusOf([]machinev1beta1.Machine{failed, going, {}}, nil)
	want := clusteroperator.ControllerStatus{
		Degraded: clusteroperator.ControllerProblem{
			Reason: "MachinesFailed", Message: "machines have failed, and are to be deleted and made again: shop/m-1",
		},
		NotUpgradeable: clusteroperator.ControllerProblem{
			Reason:  "ControlPlaneMachineDeleting",
			Message: "machines of the control plane are being deleted, and a minor update would restart what runs on the others: shop/m-2",
		},
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := statusOf([]machinev1beta1.Machine{{}}, nil); got != (clusteroperator.ControllerStatus{}) {
		t.Errorf("a machine that is well is told of: %+v", got)
	}
}

// TestStoppedControlPlanes names the active sets that a problem stops, beside failed machines.
func TestStoppedControlPlanes(t *testing.T) {
	failed := machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "m-1"}}
	failed.Status.Phase = ptr.To(machinev1beta1.PhaseFailed)
	set := machinev1.ControlPlaneMachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cluster"}}
	set.Spec.State = machinev1.ControlPlaneMachineSetStateActive
	set.Status.Conditions = []metav1.Condition{{Type: "Degraded", Status: metav1.ConditionTrue, Reason: "FailedReplacement", Message: "m-1 has failed"}}
	got := statusOf([]machinev1beta1.Machine{failed}, stoppedSets([]machinev1.ControlPlaneMachineSet{set})).Degraded
	want := clusteroperator.ControllerProblem{Reason: "ControlPlaneDegraded", Message: "control planes replace no machine: " +
		"ControlPlaneMachineSet shop/cluster (FailedReplacement: m-1 has failed); machines have failed, and are to be deleted and made again: shop/m-1"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	set.Spec.State = machinev1.ControlPlaneMachineSetStateInactive
	if got := stoppedSets([]machinev1.ControlPlaneMachineSet{set}); len(got) > 0 {
		t.Errorf("an inactive one is reported: %+v", got)
	}
	plane := controlplanev1alpha1.RunlevelControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "plane"}}
	plane.Status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionFalse, Reason: "NotAvailable", Message: "1 of 3 machines are available\n* m: down"}}
	if got := stoppedPlanes([]controlplanev1alpha1.RunlevelControlPlane{plane}); len(got) > 0 {
		t.Errorf("one that has not begun to work is reported: %+v", got)
	}
	plane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	if got := stoppedPlanes([]controlplanev1alpha1.RunlevelControlPlane{plane}); len(got) != 1 || got[0] != "RunlevelControlPlane shop/plane (NotAvailable: 1 of 3 machines are available * m: down)" {
		t.Errorf("got %q", got)
	}
}
