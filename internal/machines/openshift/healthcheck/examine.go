package healthcheck

import (
	"fmt"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/machines/conditions"
)

// ExternalRemediationAnnotation is the annotation of a Machine that requests remediation by a bare-metal controller.
const ExternalRemediationAnnotation = "host.metal3.io/external-remediation"

// defaultNodeStartupTimeout is how long a Machine may be without a node, if the health check has no timeout.
const defaultNodeStartupTimeout = 10 * time.Minute

// A checkedMachine is a Machine and its node.
type checkedMachine struct {
	machine *machinev1beta1.Machine
	node    *corev1.Node // nil if the Machine has no nodeRef, or that node is gone
}

// A verdict is the result of the health check of a machine.
type verdict struct {
	isHealthy bool
	// unhealthy is why the machine needs remediation; empty if it does not, or not yet.
	unhealthy string
	// again is when the running timeout ends; zero if there is none.
	again time.Duration
}

// examine decides whether a machine is healthy. A machine that may become unhealthy when a timeout ends, that is being
// deleted, or that is remediated externally is neither healthy nor in need of remediation.
func examine(t checkedMachine, spec machinev1beta1.MachineHealthCheckSpec, now time.Time) verdict {
	ref := t.machine.Status.NodeRef
	switch {
	case hasFailed(t.machine):
		return verdict{unhealthy: "its phase is Failed"}
	case ref == nil:
		return examineStartup(t.machine, spec, now)
	case t.node == nil:
		return verdict{unhealthy: fmt.Sprintf("its node %s is gone", ref.Name)}
	}
	found := examineNode(t.node, spec.UnhealthyConditions, now)
	found.isHealthy = found.unhealthy == "" && found.again == 0 && t.machine.DeletionTimestamp == nil &&
		!metav1.HasAnnotation(t.machine.ObjectMeta, ExternalRemediationAnnotation)
	return found
}

func hasFailed(m *machinev1beta1.Machine) bool {
	return ptr.Deref(m.Status.Phase, "") == machinev1beta1.PhaseFailed
}

// examineStartup examines a machine that has no node yet.
func examineStartup(machine *machinev1beta1.Machine, spec machinev1beta1.MachineHealthCheckSpec, now time.Time) verdict {
	timeout := defaultNodeStartupTimeout
	if spec.NodeStartupTimeout != nil {
		timeout = spec.NodeStartupTimeout.Duration
	}
	if timeout == 0 || machine.Status.LastUpdated == nil { // no limit, or not reconciled yet
		return verdict{}
	}
	if left := machine.Status.LastUpdated.Add(timeout).Sub(now); left >= 0 {
		return verdict{again: left + time.Second}
	}
	return verdict{unhealthy: fmt.Sprintf("it has no node after %s", timeout)}
}

func examineNode(node *corev1.Node, unhealthy []machinev1beta1.UnhealthyCondition, now time.Time) verdict {
	var found verdict
	for _, wanted := range unhealthy {
		for _, condition := range node.Status.Conditions {
			if condition.Type != wanted.Type || condition.Status != wanted.Status {
				continue
			}
			left := condition.LastTransitionTime.Add(wanted.Timeout.Duration).Sub(now)
			if left < 0 {
				return verdict{unhealthy: fmt.Sprintf("its node %s has had %s=%s for more than %s",
					node.Name, wanted.Type, wanted.Status, wanted.Timeout.Duration)}
			}
			// Times of conditions have no fractions of a second: hence the additional second.
			found.again = earliest(found.again, left+time.Second)
		}
	}
	return found
}

// earliest returns the shorter duration; zero is none.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// maxUnhealthy returns how many of some machines may be unhealthy while machines are remediated. Percentages are
// rounded down.
func maxUnhealthy(limit *intstr.IntOrString, machines int) (int, error) {
	if limit == nil {
		return machines, nil
	}
	value := *limit
	if value.Type == intstr.String { // a string without a percent sign is a number too
		if number := intstr.Parse(value.StrVal); number.Type == intstr.Int {
			value = number
		}
	}
	most, err := intstr.GetScaledValueFromIntOrPercent(&value, machines, false)
	if err != nil {
		return 0, fmt.Errorf("read maxUnhealthy %q: %w", limit.String(), err)
	}
	return max(0, most), nil
}

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
