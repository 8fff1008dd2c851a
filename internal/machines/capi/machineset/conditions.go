package machineset

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/aggregate"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
)

// newStatus returns the status of a set. An invalid set keeps its counts, since its machines are not known. For a paused set
// only the condition Paused changes.
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
	count(&status, machines)
	setConditions(aggregate.Scaling(len(machines), seen.wanted(), problem, aggregate.Stuck(machines, now))...)
	setConditions(aggregate.MachinesReady(machines), aggregate.MachinesUpToDate(machines, now), remediating(machines), deleting(seen, machines, now))
	return status
}

// remediating returns the condition Remediating, with the messages of the machines that the set has to replace; or, if there
// is none, the names of machines that a health check has found unhealthy.
func remediating(machines []*clusterv1.Machine) metav1.Condition {
	var names []string
	var marked []*clusterv1.Machine
	for _, m := range machines {
		if rolloutrules.IsMarked(m) {
			marked = append(marked, m)
		}
		if meta.IsStatusConditionFalse(m.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition) {
			names = append(names, m.Name)
		}
	}
	if len(marked) > 0 {
		return aggregate.Remediating(marked)
	}
	message, verb := "", "is"
	if len(names) > 1 {
		verb = "are"
	}
	if len(names) > 0 {
		message = fmt.Sprintf("%s %s not healthy (not to be remediated by MachineSet)", aggregate.MachineNames(names), verb)
	}
	return aggregate.Condition(clusterv1.RemediatingCondition, false, message)
}

// deleting returns the condition Deleting.
func deleting(seen *clusterSetSnapshot, machines []*clusterv1.Machine, now time.Time) metav1.Condition {
	switch {
	case seen.set.DeletionTimestamp == nil:
		return aggregate.Condition(clusterv1.DeletingCondition, false, "")
	case len(machines) == 0:
		return aggregate.Condition(clusterv1.DeletingCondition, true, "Deletion completed")
	default:
		return aggregate.Condition(clusterv1.DeletingCondition, true, fmt.Sprintf("Deleting %d Machines", len(machines))+aggregate.Stuck(machines, now))
	}
}
