package healthcheck

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/owners"
	"github.com/runlevel/runlevel/internal/machines/remediation"
)

// reasonInvalidSpec is the reason of RemediationAllowed, and of an event, for a spec that Cluster API's admission would
// refuse: it does not run here.
const reasonInvalidSpec = "InvalidSpec"

// newCensus returns the census of some machines before any is examined. The health check is valid.
func newCensus(check *clusterv1.MachineHealthCheck, machines int) remediation.Census {
	census := remediation.Census{Machines: machines}
	census.Least, census.Most, _ = unhealthyRange(check, machines)
	return census
}

// newCheckStatus returns the status of a health check after a census.
func newCheckStatus(check *clusterv1.MachineHealthCheck, c remediation.Census,
	targets []target) clusterv1.MachineHealthCheckStatus {
	status := *check.Status.DeepCopy()
	status.ObservedGeneration = check.Generation
	status.ExpectedMachines, status.CurrentHealthy = ptr.To(int32(c.Machines)), ptr.To(int32(c.Healthy))
	status.RemediationsAllowed = ptr.To(c.Left())
	status.Targets = nil
	for _, t := range targets {
		status.Targets = append(status.Targets, t.machine.Name)
	}
	slices.Sort(status.Targets)
	allowed := metav1.Condition{
		Type: clusterv1.MachineHealthCheckRemediationAllowedCondition, Status: metav1.ConditionTrue,
		Reason: clusterv1.MachineHealthCheckRemediationAllowedReason,
	}
	if !c.AllowsRemediation() {
		allowed.Status, allowed.Reason = metav1.ConditionFalse, clusterv1.MachineHealthCheckTooManyUnhealthyReason
		allowed.Message, status.RemediationsAllowed = restriction(check, c), ptr.To[int32](0)
	}
	setConditions(check, &status, allowed, owners.Condition(clusterv1.PausedCondition, false, ""))
	return status
}

// restriction is why no machine is remediated, in the words of Cluster API.
func restriction(check *clusterv1.MachineHealthCheck, c remediation.Census) string {
	const message = "Remediation is not allowed, the number of not started or unhealthy machines %s (total: %d, " +
		"unhealthy: %d, %s: %s)"
	trigger := check.Spec.Remediation.TriggerIf
	if trigger.UnhealthyInRange != "" {
		return fmt.Sprintf(message, "does not fall within the range", c.Machines, c.Unhealthy(), "unhealthyRange",
			trigger.UnhealthyInRange)
	}
	limit := cmp.Or(trigger.UnhealthyLessThanOrEqualTo, ptr.To(intstr.FromString("100%")))
	return fmt.Sprintf(message, "exceeds maxUnhealthy", c.Machines, c.Unhealthy(), "maxUnhealthy", limit.String())
}

// pausedStatus is the status of a paused health check: only the condition Paused changes.
func pausedStatus(check *clusterv1.MachineHealthCheck) clusterv1.MachineHealthCheckStatus {
	status := *check.Status.DeepCopy()
	setConditions(check, &status, owners.Condition(clusterv1.PausedCondition, true, ""))
	return status
}

// invalidStatus is the status of a health check that can't be read. Its counts stay, since its machines are not known.
func invalidStatus(check *clusterv1.MachineHealthCheck, problem error) clusterv1.MachineHealthCheckStatus {
	status := *check.Status.DeepCopy()
	status.ObservedGeneration, status.RemediationsAllowed = check.Generation, ptr.To[int32](0)
	setConditions(check, &status, owners.Condition(clusterv1.PausedCondition, false, ""), metav1.Condition{
		Type: clusterv1.MachineHealthCheckRemediationAllowedCondition, Status: metav1.ConditionFalse,
		Reason: reasonInvalidSpec, Message: problem.Error(),
	})
	return status
}

func setConditions(check *clusterv1.MachineHealthCheck, status *clusterv1.MachineHealthCheckStatus,
	conditions ...metav1.Condition) {
	for _, condition := range conditions {
		condition.ObservedGeneration = check.Generation
		meta.SetStatusCondition(&status.Conditions, condition)
	}
}

// writeStatus writes the status, if it changes, and records an event when remediation becomes restricted.
func (r *Reconciler) writeStatus(ctx context.Context, check *clusterv1.MachineHealthCheck,
	next clusterv1.MachineHealthCheckStatus) error {
	if equality.Semantic.DeepEqual(check.Status, next) {
		return nil
	}
	before := check.DeepCopy()
	check.Status = next
	if err := r.client.Status().Patch(ctx, check.DeepCopy(),
		client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	allowed := meta.FindStatusCondition(next.Conditions, clusterv1.MachineHealthCheckRemediationAllowedCondition)
	isUnhealthy := ptr.Deref(next.ExpectedMachines, 0) > ptr.Deref(next.CurrentHealthy, 0)
	if isRestricted(next) && !isRestricted(before.Status) && isUnhealthy {
		r.recorder.Eventf(check, nil, corev1.EventTypeWarning, "RemediationRestricted", "Remediate", "%s",
			allowed.Message)
	}
	return nil
}

// isRestricted reports whether a status reports that too many machines are unhealthy.
func isRestricted(status clusterv1.MachineHealthCheckStatus) bool {
	allowed := meta.FindStatusCondition(status.Conditions, clusterv1.MachineHealthCheckRemediationAllowedCondition)
	return allowed != nil && allowed.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason
}
