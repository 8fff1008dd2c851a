package machinedeployment

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/owners"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// report writes the status of a deployment, and returns the problem of the reconciliation, so that the queue retries.
func (r *Reconciler) report(ctx context.Context, s *snapshot, problem error) error {
	before := &clusterv1.MachineDeployment{ObjectMeta: s.deployment.ObjectMeta, Status: s.deployment.Status}
	changed := before.DeepCopy()
	message := cmp.Or(s.invalid, replicas.MessageOf(problem))
	setStatus(changed, s, message)
	return r.WriteStatus(ctx, before, changed, message, problem)
}

// setStatus sets the status of a deployment. A paused or invalid deployment keeps its counts.
func setStatus(d *clusterv1.MachineDeployment, s *snapshot, problem string) {
	if owners.SetPaused(d, s.cluster) {
		return
	}
	status := &d.Status
	status.ObservedGeneration = d.Generation
	if s.invalid != "" {
		owners.Set(d, owners.Condition(clusterv1.ScalingUpCondition, false, problem))
		return
	}
	count(status, s)
	summary := owners.Summary{
		Machines: s.owned(), Current: int(ptr.Deref(status.Replicas, 0)), Wanted: int(*s.deployment.Spec.Replicas),
		Problem: problem, Now: s.time,
	}
	if d.DeletionTimestamp != nil {
		summary.Wanted = 0
	}
	if len(s.sets) > 0 {
		summary.After = fmt.Sprintf("Deleting %d MachineSets", len(s.sets))
	}
	status.Selector = s.selector.String()
	status.Phase = phase(summary.Current, summary.Wanted)
	owners.Set(d, available(s, status.AvailableReplicas), rollingOut(s))
	owners.SetSummary(d, summary)
	owners.Set(d, remediating(summary.Machines))
}

// count adds up the counts of the sets. The machines of an outdated set are not up to date, whatever its status has.
func count(status *clusterv1.MachineDeploymentStatus, s *snapshot) {
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.UpToDateReplicas = nil, nil, nil, nil
	for _, set := range s.sets {
		upToDate := set.Status.UpToDateReplicas
		if upToDate != nil && len(s.missing(set)) > 0 {
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

// available returns the condition Available: no more machines than maxUnavailable are unavailable.
func available(s *snapshot, replicas *int32) metav1.Condition {
	spec := s.spec()
	needed := spec.Replicas - spec.MaxUnavailable
	switch {
	case replicas == nil:
		return metav1.Condition{
			Type: clusterv1.AvailableCondition, Status: metav1.ConditionUnknown,
			Reason:  clusterv1.MachineDeploymentAvailableWaitingForAvailableReplicasSetReason,
			Message: "Waiting for status.availableReplicas set",
		}
	case int(*replicas) >= needed:
		return owners.Condition(clusterv1.AvailableCondition, true, "")
	case s.deployment.DeletionTimestamp != nil:
		return owners.Condition(clusterv1.AvailableCondition, false, "Deletion in progress")
	}
	message := fmt.Sprintf("%d available replicas, at least %d required", *replicas, needed)
	if !spec.IsOnDelete {
		message += fmt.Sprintf(" (spec.strategy.rollout.maxUnavailable is %s, spec.replicas is %d)",
			s.deployment.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable, spec.Replicas)
	}
	return owners.Condition(clusterv1.AvailableCondition, false, message)
}

// rollingOut returns the condition RollingOut, with the reasons why machines are not up to date: a version first. If
// extensions can update machines in place, the message also has the reasons why machines are replaced.
func rollingOut(s *snapshot) metav1.Condition {
	outdated, reasons := 0, map[string]bool{}
	for _, machine := range s.owned() {
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
		return owners.Condition(clusterv1.RollingOutCondition, false, "")
	}
	lines := append(owners.RolloutReasons(maps.Keys(reasons)), s.replacements()...)
	return owners.Condition(clusterv1.RollingOutCondition, true,
		fmt.Sprintf("Rolling out %d not up-to-date replicas\n%s", outdated, strings.Join(lines, "\n")))
}

// remediating returns the condition Remediating. Machines are remediated by their sets.
func remediating(machines []*clusterv1.Machine) metav1.Condition {
	var unhealthy, remediated []string
	for _, machine := range machines {
		if !meta.IsStatusConditionFalse(machine.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition) {
			continue
		}
		unhealthy = append(unhealthy, machine.Name)
		if owner := meta.FindStatusCondition(machine.Status.Conditions,
			clusterv1.MachineOwnerRemediatedCondition); owner != nil &&
			owner.Status == metav1.ConditionFalse {
			remediated = append(remediated,
				fmt.Sprintf("* Machine %s: %s", machine.Name, cmp.Or(owner.Message, owner.Reason)))
		}
	}
	switch {
	case len(remediated) > 0:
		return owners.Condition(clusterv1.RemediatingCondition, true, strings.Join(remediated, "\n"))
	case len(unhealthy) > 0:
		return owners.Condition(clusterv1.RemediatingCondition, false,
			"Not healthy, and not to be remediated by their set: "+strings.Join(unhealthy, ", "))
	}
	return owners.Condition(clusterv1.RemediatingCondition, false, "")
}
