package machinedeployment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/aggregate"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// report writes the status, and records an event of a problem that was not reported before. It returns the problem, for a retry.
func (r *ClusterMachineDeploymentReconciler) report(ctx context.Context, seen *deploymentSnapshot, problem error) error {
	message := cmp.Or(seen.invalid, replicas.MessageOf(problem))
	before := &clusterv1.MachineDeployment{ObjectMeta: seen.deployment.ObjectMeta, Status: seen.deployment.Status}
	changed := before.DeepCopy()
	changed.Status = newStatus(seen, message)
	if equality.Semantic.DeepEqual(before.Status, changed.Status) {
		return problem
	}
	reported := meta.FindStatusCondition(before.Status.Conditions, clusterv1.ScalingUpCondition)
	if message != "" && (reported == nil || !strings.HasSuffix(reported.Message, message)) {
		r.recorder.Eventf(seen.deployment, nil, corev1.EventTypeWarning, "ReconcileError", "Reconcile", "%s", message)
	}
	// A deployment whose finalizer was removed is gone.
	if err := r.cached.Status().Patch(ctx, changed, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return errors.Join(problem, fmt.Errorf("write the status of MachineDeployment %s: %w", before.Name, err))
	}
	return problem
}

// newStatus returns the status of a deployment. A paused or invalid deployment keeps its counts.
func newStatus(seen *deploymentSnapshot, problem string) clusterv1.MachineDeploymentStatus {
	status := *seen.deployment.Status.DeepCopy()
	setConditions := func(conditions ...metav1.Condition) {
		for _, condition := range conditions {
			condition.ObservedGeneration = seen.deployment.Generation
			meta.SetStatusCondition(&status.Conditions, condition)
		}
	}
	setConditions(aggregate.Condition(clusterv1.PausedCondition, seen.isPaused(), ""))
	if seen.isPaused() {
		return status
	}
	status.ObservedGeneration = seen.deployment.Generation
	if seen.invalid != "" {
		setConditions(aggregate.Condition(clusterv1.ScalingUpCondition, false, problem))
		return status
	}
	machines, wanted := seen.owned(), int(*seen.deployment.Spec.Replicas)
	if seen.deployment.DeletionTimestamp != nil {
		wanted = 0
	}
	status.Selector = seen.selector.String()
	count(&status, seen)
	status.Phase = phase(int(ptr.Deref(status.Replicas, 0)), wanted)
	setConditions(available(seen, status.AvailableReplicas), rollingOut(seen))
	setConditions(aggregate.Scaling(int(ptr.Deref(status.Replicas, 0)), wanted, problem, aggregate.Stuck(machines, seen.time))...)
	setConditions(aggregate.MachinesReady(machines), aggregate.MachinesUpToDate(machines, seen.time), remediating(machines), deleting(seen, machines))
	return status
}

// count sums up the counts of sets, once each of them has counted. A set that has become outdated may still count its machines
// as up to date.
func count(status *clusterv1.MachineDeploymentStatus, seen *deploymentSnapshot) {
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.UpToDateReplicas = nil, nil, nil, nil
	for _, set := range seen.sets {
		upToDate := set.Status.UpToDateReplicas
		if upToDate != nil && len(seen.missing(set)) > 0 {
			upToDate = ptr.To[int32](0)
		}
		for into, number := range map[**int32]*int32{
			&status.Replicas: set.Status.Replicas, &status.ReadyReplicas: set.Status.ReadyReplicas,
			&status.AvailableReplicas: set.Status.AvailableReplicas, &status.UpToDateReplicas: upToDate,
		} {
			if number != nil {
				*into = ptr.To(ptr.Deref(*into, 0) + *number)
			}
		}
	}
}

func phase(current, wanted int) string {
	switch {
	case current < wanted:
		return string(clusterv1.MachineDeploymentPhaseScalingUp)
	case current > wanted:
		return string(clusterv1.MachineDeploymentPhaseScalingDown)
	}
	return string(clusterv1.MachineDeploymentPhaseRunning)
}
