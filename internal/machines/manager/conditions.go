package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1alpha1 "github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/openshift/controlplane"
	"github.com/runlevel/runlevel/internal/program/clusteroperator"
)

// The reasons of the ClusterOperator's conditions that only this controller has.
const (
	ReasonMachinesFailed       = "MachinesFailed"
	ReasonControlPlaneDegraded = "ControlPlaneDegraded"
	ReasonControlPlaneChanging = "ControlPlaneMachinesChanging"
)

// relatedObjects returns the objects that an administrator reads, or collects for an error report.
func relatedObjects(dialects []Dialect) []configv1.ObjectReference {
	related := []configv1.ObjectReference{
		{Resource: "namespaces", Name: DefaultNamespace},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: programName},
		{Group: "machine.openshift.io", Resource: "machines"},
		{Group: "machine.openshift.io", Resource: "machinesets"},
		{Group: "machine.openshift.io", Resource: "machinehealthchecks"},
		{Group: "machine.openshift.io", Resource: "controlplanemachinesets"},
	}
	if slices.Contains(dialects, ClusterAPI) {
		for _, resource := range []string{"machines", "machinesets", "machinedeployments", "machinehealthchecks"} {
			related = append(related, configv1.ObjectReference{Group: clusterv1.GroupVersion.Group, Resource: resource})
		}
	}
	if hasRunlevelControlPlanes(dialects) {
		related = append(related,
			configv1.ObjectReference{Group: controlplanev1alpha1.GroupVersion.Group, Resource: "runlevelcontrolplanes"})
	}
	return related
}

// readStatus returns the status of the controllers, from the machines in the cache.
func readStatus(ctx context.Context, cached client.Reader,
	dialects []Dialect) (clusteroperator.Status, error) {
	var machines machinev1beta1.MachineList
	if err := cached.List(ctx, &machines, client.UnsafeDisableDeepCopy); err != nil {
		return clusteroperator.Status{}, fmt.Errorf("list machines: %w", err)
	}
	// Sets whose cache is not synced, for lack of a right, must not hold up the status, which has to report just that.
	ctx, cancel := context.WithTimeout(ctx, syncedWithin)
	defer cancel()
	var sets machinev1.ControlPlaneMachineSetList
	_ = cached.List(ctx, &sets, client.UnsafeDisableDeepCopy)
	var planes controlplanev1alpha1.RunlevelControlPlaneList
	var members clusterv1.MachineList
	if hasRunlevelControlPlanes(dialects) {
		_ = cached.List(ctx, &planes, client.UnsafeDisableDeepCopy)
		_ = cached.List(ctx, &members, client.HasLabels{clusterv1.MachineControlPlaneLabel},
			client.UnsafeDisableDeepCopy)
	}
	stopped := append(stoppedSets(sets.Items), stoppedPlanes(planes.Items)...)
	return statusOf(machines.Items, stopped,
		append(deletedMachines(machines.Items), changingMachines(members.Items)...)), nil
}

// syncedWithin limits how long the status waits for the cache of a kind.
const syncedWithin = time.Second

// statusOf returns the status of the controllers. It depends on all machines, on the problems that stop the replacement
// of control plane machines, and on the control plane machines that are changing. Upgradeable is false while one is
// changing: a minor update restarts the components on the others.
func statusOf(machines []machinev1beta1.Machine, stopped, changing []string) clusteroperator.Status {
	var failed []string
	for _, m := range machines {
		if ptr.Deref(m.Status.Phase, "") == machinev1beta1.PhaseFailed {
			failed = append(failed, m.Namespace+"/"+m.Name)
		}
	}
	var s clusteroperator.Status
	if len(failed) > 0 {
		s.Degraded = clusteroperator.Problem{Reason: ReasonMachinesFailed, Message: fmt.Sprintf(
			"machines have failed: delete them, so that they are created again: %s", clusteroperator.List(failed))}
	}
	if len(stopped) > 0 {
		message := fmt.Sprintf("control planes can't replace machines: %s", clusteroperator.List(stopped))
		if s.Degraded.Message != "" {
			message += "; " + s.Degraded.Message
		}
		s.Degraded = clusteroperator.Problem{Reason: ReasonControlPlaneDegraded, Message: message}
	}
	if len(changing) > 0 {
		s.NotUpgradeable = clusteroperator.Problem{Reason: ReasonControlPlaneChanging, Message: fmt.Sprintf(
			"machines of the control plane are being deleted or updated, and a minor update would restart what runs "+
				"on the others: %s", clusteroperator.List(changing))}
	}
	return s
}

// deletedMachines returns the machines of the control plane being deleted.
func deletedMachines(machines []machinev1beta1.Machine) []string {
	var deleted []string
	for _, m := range machines {
		if !m.DeletionTimestamp.IsZero() && isOfControlPlane(m) {
			deleted = append(deleted, m.Namespace+"/"+m.Name)
		}
	}
	return deleted
}

// changingMachines returns the machines of Cluster API's control planes being deleted, or updated in place.
func changingMachines(members []clusterv1.Machine) []string {
	var changing []string
	for _, m := range members {
		if !m.DeletionTimestamp.IsZero() || rolloutrules.IsUpdating(&m) {
			changing = append(changing, m.Namespace+"/"+m.Name)
		}
	}
	return changing
}

// stoppedSets returns the active sets that a problem stops. An inactive one is a proposal: as in OpenShift, its
// problems are only its own.
func stoppedSets(sets []machinev1.ControlPlaneMachineSet) []string {
	var stopped []string
	for _, s := range sets {
		degraded := meta.FindStatusCondition(s.Status.Conditions, controlplane.Degraded)
		if s.Spec.State == machinev1.ControlPlaneMachineSetStateActive && degraded != nil &&
			degraded.Status == metav1.ConditionTrue {
			stopped = append(stopped,
				fmt.Sprintf("ControlPlaneMachineSet %s/%s (%s: %s)", s.Namespace, s.Name, degraded.Reason,
					degraded.Message))
		}
	}
	return stopped
}

// stoppedPlanes returns the control planes that have begun to work, and of whose machines no majority is available.
// Paused control planes, and those being deleted, are left out: they change nothing anyway.
func stoppedPlanes(planes []controlplanev1alpha1.RunlevelControlPlane) []string {
	var stopped []string
	for _, p := range planes {
		available := meta.FindStatusCondition(p.Status.Conditions, clusterv1.AvailableCondition)
		isActive := p.DeletionTimestamp == nil &&
			!meta.IsStatusConditionTrue(p.Status.Conditions, clusterv1.PausedCondition)
		if isActive && ptr.Deref(p.Status.Initialization.ControlPlaneInitialized, false) && available != nil &&
			available.Status == metav1.ConditionFalse {
			stopped = append(stopped,
				fmt.Sprintf("RunlevelControlPlane %s/%s (%s: %s)", p.Namespace, p.Name, available.Reason,
					strings.ReplaceAll(available.Message, "\n", " ")))
		}
	}
	return stopped
}

// isOfControlPlane reports whether a machine has the role of the control plane, by its label.
func isOfControlPlane(m machinev1beta1.Machine) bool {
	role := m.Labels["machine.openshift.io/cluster-api-machine-role"]
	return role == "master" || role == "control-plane"
}
