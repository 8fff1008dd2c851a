package machinedeployment

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/patch"
)

// judge sets the condition UpToDate of each machine, in the snapshot too, from which the status of the deployment is computed. A
// machine that changes meanwhile triggers another pass.
func (r *ClusterMachineDeploymentReconciler) judge(ctx context.Context, seen *deploymentSnapshot) error {
	if seen.invalid != "" {
		return nil
	}
	for _, set := range seen.sets {
		for i, machine := range seen.machines[set.UID] {
			judged := machine.DeepCopy()
			meta.SetStatusCondition(&judged.Status.Conditions, seen.upToDate(set, machine))
			if equality.Semantic.DeepEqual(machine.Status.Conditions, judged.Status.Conditions) {
				continue
			}
			seen.machines[set.UID][i] = judged
			err := patch.StatusWithLock(ctx, r.cached, judged, machine)
			if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				return fmt.Errorf("write the status of Machine %s: %w", machine.Name, err)
			}
		}
	}
	return nil
}

// missing returns why the machines of a set are not up to date; empty if its template is the deployment's.
func (s *deploymentSnapshot) missing(set *clusterv1.MachineSet) []string {
	missing := rolloutrules.Differences(set.Spec.Template.Spec, s.deployment.Spec.Template.Spec)
	if rolloutrules.IsExpired(s.deployment, set, s.time) {
		missing = append(missing, "MachineDeployment spec.rolloutAfter expired")
	}
	return missing
}

// upToDate returns the condition UpToDate of a machine. It depends on the template of its set, as the rollout does, and
// then on whether the update of the machine is complete.
func (s *deploymentSnapshot) upToDate(set *clusterv1.MachineSet, machine *clusterv1.Machine) metav1.Condition {
	condition := metav1.Condition{
		Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionFalse, ObservedGeneration: machine.Generation,
	}
	missing := s.missing(set)
	kubelet := ""
	if machine.Status.NodeInfo != nil {
		kubelet = machine.Status.NodeInfo.KubeletVersion
	}
	updating := ptr.Deref(meta.FindStatusCondition(machine.Status.Conditions, clusterv1.MachineUpdatingCondition), metav1.Condition{})
	switch version := machine.Spec.Version; {
	case len(missing) > 0:
		condition.Reason, condition.Message = clusterv1.MachineNotUpToDateReason, "* "+strings.Join(missing, "\n* ")
	case rolloutrules.IsUpdating(machine) || updating.Status == metav1.ConditionTrue:
		condition.Reason = clusterv1.MachineUpToDateUpdatingReason
		condition.Message = "* " + cmp.Or(updating.Message, "In-place update in progress")
	case version != "" && kubelet != "" && kubelet != version:
		condition.Reason = clusterv1.MachineUpToDateUpdatingReason
		condition.Message = fmt.Sprintf("* Node.status.nodeInfo.kubeletVersion %s, %s required", kubelet, version)
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, clusterv1.MachineUpToDateReason
	}
	return condition
}
