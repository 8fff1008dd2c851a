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
func (r *Reconciler) report(ctx context.Context, s *snapshot, problem error) error {
	changed := s.set.DeepCopy()
	message := cmp.Or(s.invalid, replicas.MessageOf(problem))
	changed.Status = newStatus(s, message, r.now())
	return aggregate.StatusWriter{Client: r.cached, Events: r.recorder}.Write(ctx, s.set, changed, message, problem)
}

// newStatus returns the status of a set. An invalid set keeps its counts, since its machines are not known. For a
// paused set only the condition Paused changes.
func newStatus(s *snapshot, problem string, now time.Time) clusterv1.MachineSetStatus {
	status := *s.set.Status.DeepCopy()
	setConditions := func(conditions ...metav1.Condition) {
		for _, condition := range conditions {
			condition.ObservedGeneration = s.set.Generation
			meta.SetStatusCondition(&status.Conditions, condition)
		}
	}
	setConditions(aggregate.Condition(clusterv1.PausedCondition, s.isPaused(), ""))
	if s.isPaused() {
		return status
	}
	status.ObservedGeneration = s.set.Generation
	if s.invalid != "" {
		setConditions(aggregate.Condition(clusterv1.ScalingUpCondition, false, problem))
		return status
	}
	machines := s.counted()
	status.Selector = s.selector.String()
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.UpToDateReplicas = aggregate.Count(machines)
	setConditions(aggregate.Scaling(len(machines), s.wanted(), problem, aggregate.Stuck(machines, now))...)
	setConditions(aggregate.MachinesReady(machines), aggregate.MachinesUpToDate(machines, now),
		aggregate.Remediated(machines, "MachineSet"), deleting(s, machines, now))
	return status
}

// deleting returns the condition Deleting.
func deleting(s *snapshot, machines []*clusterv1.Machine, now time.Time) metav1.Condition {
	switch {
	case s.set.DeletionTimestamp == nil:
		return aggregate.Condition(clusterv1.DeletingCondition, false, "")
	case len(machines) == 0:
		return aggregate.Condition(clusterv1.DeletingCondition, true, "Deletion completed")
	default:
		return aggregate.Condition(clusterv1.DeletingCondition, true,
			fmt.Sprintf("Deleting %d Machines", len(machines))+aggregate.Stuck(machines, now))
	}
}
