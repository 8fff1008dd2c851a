package manager

import (
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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
	got := statusOf([]machinev1beta1.Machine{failed, going, {}})
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
	if got := statusOf([]machinev1beta1.Machine{{}}); got != (clusteroperator.ControllerStatus{}) {
		t.Errorf("a machine that is well is told of: %+v", got)
	}
}
