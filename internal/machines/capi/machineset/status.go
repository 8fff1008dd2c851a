package machineset

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/aggregate"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// report writes the status, and records an event of a problem that was not reported before. It returns the problem, for
// a retry.
func (r *ClusterMachineSetReconciler) report(ctx context.Context, seen *clusterSetSnapshot, problem error) error {
	changed := seen.set.DeepCopy()
	message := cmp.Or(seen.invalid, replicas.MessageOf(problem))
	changed.Status = newStatus(seen, message, r.now())
	return aggregate.StatusWriter{Client: r.cached, Events: r.recorder}.Write(ctx, seen.set, changed, message, problem)
}

// newStatus returns the status of a set. An invalid set keeps its counts, since its machines are not known. For a
// paused set only the condition Paused changes.
func newStatus(seen *clusterSetSnapshot, problem string, now time.Time) clusterv1.MachineSetStatus {
	status := *seen.set.Status.DeepCopy()
	setConditions := func(conditions ...metav1.Condition) {
		for _, condition := range conditions {
			condition.ObservedGeneration = seen.set.Generation
			meta.SetStatusCondition(&status.Conditions, condition)
		}
	}
	setConditions(aggregate.Condition(clusterv1.PausedCondition, seen.isPaused(), ""))
	if seen.isPaused() {
		return status
	}
	status.ObservedGeneration = seen.set.Generation
	if seen.invalid != "" {
		setConditions(aggregate.Condition(clusterv1.ScalingUpCondition, false, problem))
		return status
	}
	machines := seen.counted()
	status.Selector = seen.selector.String()
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.UpToDateReplicas = aggregate.Count(machines)
	setConditions(aggregate.Scaling(len(machines), seen.wanted(), problem, aggregate.Stuck(machines, now))...)
	setConditions(aggregate.MachinesReady(machines), aggregate.MachinesUpToDate(machines, now),
		aggregate.Remediated(machines, "MachineSet"), deleting(seen, machines, now))
	return status
}

// deleting returns the condition Deleting.
func deleting(seen *clusterSetSnapshot, machines []*clusterv1.Machine, now time.Time) metav1.Condition {
	switch {
	case seen.set.DeletionTimestamp == nil:
		return aggregate.Condition(clusterv1.DeletingCondition, false, "")
	case len(machines) == 0:
		return aggregate.Condition(clusterv1.DeletingCondition, true, "Deletion completed")
	default:
		return aggregate.Condition(clusterv1.DeletingCondition, true,
			fmt.Sprintf("Deleting %d Machines", len(machines))+aggregate.Stuck(machines, now))
	}
}
