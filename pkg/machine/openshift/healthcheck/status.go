package healthcheck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A census is how many machines a health check selects, and how they are.
type census struct {
	machines, healthy, limit int
}

func (c census) unhealthy() int { return c.machines - c.healthy }

// allowsRemediation is false if so many machines are unhealthy that the cause is rather not in them.
func (c census) allowsRemediation() bool { return c.unhealthy() <= c.limit }

// isRestricted reports whether the last census allowed no remediation.
func isRestricted(status machinev1beta1.MachineHealthCheckStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c machinev1beta1.Condition) bool {
		return c.Type == machinev1beta1.RemediationAllowedCondition && c.Status == corev1.ConditionFalse
	})
}

// nextStatus returns the status of a health check that follows from what was counted.
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
	next.Conditions = withCondition(next.Conditions, condition, now)
	return next
}

// withCondition returns conditions with one of them set, sorted by type. Its time changes with anything else of it.
func withCondition(all []machinev1beta1.Condition, set machinev1beta1.Condition, now time.Time) []machinev1beta1.Condition {
	set.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
	at := slices.IndexFunc(all, func(c machinev1beta1.Condition) bool { return c.Type == set.Type })
	if at < 0 {
		all = append(all, set)
	} else if old := all[at]; old.Status != set.Status || old.Reason != set.Reason || old.Severity != set.Severity || old.Message != set.Message {
		all[at] = set
	}
	slices.SortFunc(all, func(a, b machinev1beta1.Condition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	return all
}
