package machinedeployment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/aggregate"
)

// available returns the condition Available: no more machines than maxUnavailable are unavailable.
func available(seen *deploymentSnapshot, replicas *int32) metav1.Condition {
	spec := seen.spec()
	needed := spec.Replicas - spec.MaxUnavailable
	switch {
	case replicas == nil:
		return metav1.Condition{
			Type: clusterv1.AvailableCondition, Status: metav1.ConditionUnknown,
			Reason: clusterv1.MachineDeploymentAvailableWaitingForAvailableReplicasSetReason, Message: "Waiting for status.availableReplicas set",
		}
	case int(*replicas) >= needed:
		return aggregate.Condition(clusterv1.AvailableCondition, true, "")
	case seen.deployment.DeletionTimestamp != nil:
		return aggregate.Condition(clusterv1.AvailableCondition, false, "Deletion in progress")
	}
	message := fmt.Sprintf("%d available replicas, at least %d required", *replicas, needed)
	if !spec.IsOnDelete {
		message += fmt.Sprintf(" (spec.strategy.rollout.maxUnavailable is %s, spec.replicas is %d)",
			seen.deployment.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable, spec.Replicas)
	}
	return aggregate.Condition(clusterv1.AvailableCondition, false, message)
}

// rollingOut returns the condition RollingOut, with the reasons why machines are not up to date: a version first. If extensions
// can update machines in place, the message also has the reasons why machines are replaced.
func rollingOut(seen *deploymentSnapshot) metav1.Condition {
	outdated, reasons := 0, map[string]bool{}
	for _, machine := range seen.owned() {
		condition := meta.FindStatusCondition(machine.Status.Conditions, clusterv1.MachineUpToDateCondition)
		if condition == nil || condition.Status != metav1.ConditionFalse {
			continue
		}
		outdated++
		for line := range strings.SplitSeq(condition.Message, "\n") {
			reasons[line] = true
		}
	}
	if outdated == 0 {
		return aggregate.Condition(clusterv1.RollingOutCondition, false, "")
	}
	lines := slices.Sorted(maps.Keys(reasons))
	slices.SortStableFunc(lines, func(a, b string) int { return rankOf(a) - rankOf(b) })
	lines = append(lines, seen.replacements()...)
	return aggregate.Condition(clusterv1.RollingOutCondition, true,
		fmt.Sprintf("Rolling out %d not up-to-date replicas\n%s", outdated, strings.Join(lines, "\n")))
}

// rankOf sorts versions before other reasons.
func rankOf(reason string) int {
	if strings.HasPrefix(reason, "* Version") {
		return 0
	}
	return 1
}

// remediating returns the condition Remediating. Machines are remediated by their sets.
func remediating(machines []*clusterv1.Machine) metav1.Condition {
	var unhealthy, remediated []string
	for _, machine := range machines {
		if !meta.IsStatusConditionFalse(machine.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition) {
			continue
		}
		unhealthy = append(unhealthy, machine.Name)
		if owner := meta.FindStatusCondition(machine.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition); owner != nil &&
			owner.Status == metav1.ConditionFalse {
			remediated = append(remediated, fmt.Sprintf("* Machine %s: %s", machine.Name, cmp.Or(owner.Message, owner.Reason)))
		}
	}
	switch {
	case len(remediated) > 0:
		return aggregate.Condition(clusterv1.RemediatingCondition, true, strings.Join(remediated, "\n"))
	case len(unhealthy) > 0:
		return aggregate.Condition(clusterv1.RemediatingCondition, false,
			"Not healthy, and not to be remediated by their set: "+strings.Join(unhealthy, ", "))
	}
	return aggregate.Condition(clusterv1.RemediatingCondition, false, "")
}

// deleting returns the condition Deleting.
func deleting(seen *deploymentSnapshot, machines []*clusterv1.Machine) metav1.Condition {
	switch {
	case seen.deployment.DeletionTimestamp == nil:
		return aggregate.Condition(clusterv1.DeletingCondition, false, "")
	case len(machines) > 0:
		return aggregate.Condition(clusterv1.DeletingCondition, true,
			fmt.Sprintf("Deleting %d Machines", len(machines))+aggregate.Stuck(machines, seen.time))
	case len(seen.sets) > 0:
		return aggregate.Condition(clusterv1.DeletingCondition, true, fmt.Sprintf("Deleting %d MachineSets", len(seen.sets)))
	}
	return aggregate.Condition(clusterv1.DeletingCondition, true, "Deletion completed")
}
