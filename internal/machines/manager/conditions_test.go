package manager

import (
	"slices"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1alpha1 "github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/program/clusteroperator"
)

// TestOperatorStatus has a failed machine, and one of the control plane that is being deleted.
func TestOperatorStatus(t *testing.T) {
	failed := machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "m-1"}}
	failed.Status.Phase = ptr.To(machinev1beta1.PhaseFailed)
	going := machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "m-2", DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)},
		Labels: map[string]string{"machine.openshift.io/cluster-api-machine-role": "master"},
	}}
	all := []machinev1beta1.Machine{failed, going, {}}
	got := statusOf(all, nil, deletedMachines(all))
	want := clusteroperator.Status{
		Degraded: clusteroperator.Problem{
			Reason:  "MachinesFailed",
			Message: "machines have failed: delete them, so that they are created again: shop/m-1",
		},
		NotUpgradeable: clusteroperator.Problem{
			Reason: "ControlPlaneMachinesChanging",
			Message: "machines of the control plane are being deleted or updated, and a minor update would restart " +
				"what runs on the others: shop/m-2",
		},
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := statusOf([]machinev1beta1.Machine{{}}, nil, nil); got != (clusteroperator.Status{}) {
		t.Errorf("a healthy machine: got %+v, want an empty status", got)
	}
}

// TestStoppedControlPlanes names the active sets that a problem stops, beside failed machines.
func TestStoppedControlPlanes(t *testing.T) {
	failed := machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "m-1"}}
	failed.Status.Phase = ptr.To(machinev1beta1.PhaseFailed)
	set := machinev1.ControlPlaneMachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cluster"}}
	set.Spec.State = machinev1.ControlPlaneMachineSetStateActive
	set.Status.Conditions = []metav1.Condition{{
		Type:    "Degraded",
		Status:  metav1.ConditionTrue,
		Reason:  "FailedReplacement",
		Message: "m-1 has failed",
	}}
	got := statusOf([]machinev1beta1.Machine{failed}, stoppedSets([]machinev1.ControlPlaneMachineSet{set}),
		nil).Degraded
	want := clusteroperator.Problem{Reason: "ControlPlaneDegraded",
		Message: "control planes can't replace machines: " +
			"ControlPlaneMachineSet shop/cluster (FailedReplacement: m-1 has failed); machines have failed: delete " +
			"them, so that they are created again: shop/m-1"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	set.Spec.State = machinev1.ControlPlaneMachineSetStateInactive
	if got := stoppedSets([]machinev1.ControlPlaneMachineSet{set}); len(got) > 0 {
		t.Errorf("an inactive set: got %+v, want none", got)
	}
	plane := controlplanev1alpha1.RunlevelControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "plane"}}
	plane.Status.Conditions = []metav1.Condition{{
		Type:    "Available",
		Status:  metav1.ConditionFalse,
		Reason:  "NotAvailable",
		Message: "1 of 3 machines are available\n* m: down",
	}}
	if got := stoppedPlanes([]controlplanev1alpha1.RunlevelControlPlane{plane}); len(got) > 0 {
		t.Errorf("a control plane that has not begun to work: got %+v, want none", got)
	}
	plane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	if got := stoppedPlanes([]controlplanev1alpha1.RunlevelControlPlane{plane}); len(got) != 1 ||
		got[0] != "RunlevelControlPlane shop/plane (NotAvailable: 1 of 3 machines are available * m: down)" {
		t.Errorf("got %q", got)
	}
}

// TestChangingControlPlanes names the machines of Cluster API's control planes being deleted, or updated in
// place.
func TestChangingControlPlanes(t *testing.T) {
	deleted := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace:         "shop",
		Name:              "m-1",
		DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)},
	}}
	updated := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace:   "shop",
		Name:        "m-2",
		Annotations: map[string]string{clusterv1.UpdateInProgressAnnotation: ""},
	}}
	if got := changingMachines([]clusterv1.Machine{deleted, updated, {}}); !slices.Equal(got,
		[]string{"shop/m-1", "shop/m-2"}) {
		t.Errorf("got %q", got)
	}
}

// TestRelatedObjects has the kinds of the APIs that are served.
func TestRelatedObjects(t *testing.T) {
	has := func(resource, group string, dialects ...Dialect) bool {
		return slices.Contains(relatedObjects(dialects), configv1.ObjectReference{Group: group, Resource: resource})
	}
	const planes = "controlplane.runlevel.dev"
	if has("runlevelcontrolplanes", planes, OpenShift) ||
		has("machines", "cluster.x-k8s.io", OpenShift, ControlPlanes) {
		t.Error("kinds of APIs that are not served are related")
	}
	if !has("runlevelcontrolplanes", planes, ControlPlanes) || !has("runlevelcontrolplanes", planes, ClusterAPI) ||
		!has("machines", "cluster.x-k8s.io", ClusterAPI) {
		t.Error("a kind is missing")
	}
}
