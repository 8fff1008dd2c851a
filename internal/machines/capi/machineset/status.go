package machineset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// report writes the status, and records an event of a problem that was not reported before. It returns the problem, for a retry.
func (r *ClusterMachineSetReconciler) report(ctx context.Context, seen *clusterSetSnapshot, problem error) error {
	changed := seen.set.DeepCopy()
	message := cmp.Or(seen.invalid, replicas.MessageOf(problem))
	changed.Status = newStatus(seen, message, r.now())
	if equality.Semantic.DeepEqual(seen.set.Status, changed.Status) {
		return problem
	}
	if !isReported(&seen.set.Status, message) {
		r.recorder.Eventf(seen.set, nil, corev1.EventTypeWarning, "ReconcileError", "Reconcile", "%s", message)
	}
	// A set whose finalizer was removed is gone.
	if err := r.cached.Status().Patch(ctx, changed, client.MergeFrom(seen.set)); client.IgnoreNotFound(err) != nil {
		return errors.Join(problem, fmt.Errorf("write the status of MachineSet %s: %w", seen.set.Name, err))
	}
	return problem
}

// isReported reports whether a status has a message.
func isReported(status *clusterv1.MachineSetStatus, message string) bool {
	condition := meta.FindStatusCondition(status.Conditions, clusterv1.ScalingUpCondition)
	return message == "" || condition != nil && strings.HasSuffix(condition.Message, message)
}

// count sets the counts of a status. A machine that is updated in place is not counted as ready, available or up to date.
func count(status *clusterv1.MachineSetStatus, machines []*clusterv1.Machine) {
	var ready, available, upToDate int32
	for _, m := range machines {
		if rolloutrules.IsUpdating(m) {
			continue
		}
		for condition, number := range map[string]*int32{
			clusterv1.MachineReadyCondition: &ready, clusterv1.MachineAvailableCondition: &available,
			clusterv1.MachineUpToDateCondition: &upToDate,
		} {
			if meta.IsStatusConditionTrue(m.Status.Conditions, condition) {
				*number++
			}
		}
	}
	status.Replicas, status.ReadyReplicas = ptr.To(int32(len(machines))), &ready
	status.AvailableReplicas, status.UpToDateReplicas = &available, &upToDate
}
