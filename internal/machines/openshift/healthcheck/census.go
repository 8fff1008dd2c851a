package healthcheck

import (
	"fmt"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/machines/conditions"
)

// A census is how many machines a health check selects, and how many of them are healthy.
type census struct {
	machines, healthy, limit int
}

func (c census) unhealthy() int { return c.machines - c.healthy }

// allowsRemediation is false if so many machines are unhealthy that the cause is probably elsewhere.
func (c census) allowsRemediation() bool { return c.unhealthy() <= c.limit }

// isRestricted reports whether the last census allowed no remediation.
func isRestricted(status machinev1beta1.MachineHealthCheckStatus) bool {
	return conditions.Find(status.Conditions, machinev1beta1.RemediationAllowedCondition).Status == corev1.ConditionFalse
}

// nextStatus returns the status of a health check after a census.
func nextStatus(check *machinev1beta1.MachineHealthCheck, c census, now time.Time) machinev1beta1.MachineHealthCheckStatus {
	next := *check.Status.DeepCopy()
	next.ExpectedMachines, next.CurrentHealthy = &c.machines, &c.healthy
	next.RemediationsAllowed = int32(max(0, c.limit-c.unhealthy()))
	condition := machinev1beta1.Condition{Type: machinev1beta1.RemediationAllowedCondition, Status: corev1.ConditionTrue}
	if !c.allowsRemediation() {
		condition.Status, condition.Severity = corev1.ConditionFalse, machinev1beta1.ConditionSeverityWarning
		condition.Reason = machinev1beta1.TooManyUnhealthyReason
		condition.Message = fmt.Sprintf("Remediation is not allowed, the number of not started or unhealthy machines "+
			"exceeds maxUnhealthy (total: %d, unhealthy: %d, maxUnhealthy: %v)", c.machines, c.unhealthy(), check.Spec.MaxUnhealthy)
	}
	next.Conditions = conditions.Set(next.Conditions, condition, now)
	return next
}
