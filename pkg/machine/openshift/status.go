package openshift

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/pkg/infra"
)

// An observation is what was seen of the infrastructure of a machine that is not being deleted.
type observation struct {
	instance infra.Instance
	err      error // why it could not be looked at, or made
}

// hookConditions sets the conditions that say which hooks hold a machine, or would.
func hookConditions(m *machinev1beta1.Machine, status *machinev1beta1.MachineStatus, now time.Time) {
	hooks := m.Spec.LifecycleHooks
	setHooks := func(kind machinev1beta1.ConditionType, operation string, hooks []machinev1beta1.LifecycleHook) {
		condition := machinev1beta1.Condition{Type: kind, Status: corev1.ConditionTrue}
		if len(hooks) > 0 {
			condition.Status, condition.Reason = corev1.ConditionFalse, machinev1beta1.MachineHookPresent
			condition.Severity = machinev1beta1.ConditionSeverityWarning
			condition.Message = fmt.Sprintf("%s operation currently blocked by: %+v", operation, hooks)
		}
		setCondition(status, condition, now)
	}
	setHooks(machinev1beta1.MachineDrainable, "Drain", hooks.PreDrain)
	setHooks(machinev1beta1.MachineTerminable, "Terminate", hooks.PreTerminate)
}

// liveStatus returns the status of a machine that is not being deleted.
func liveStatus(m *machinev1beta1.Machine, seen observation, now time.Time) machinev1beta1.MachineStatus {
	status := *m.Status.DeepCopy()
	hookConditions(m, &status, now)
	if ptr.Deref(status.Phase, "") == machinev1beta1.PhaseFailed { // for good
		return status
	}
	exists := machinev1beta1.Condition{Type: machinev1beta1.InstanceExistsCondition, Status: corev1.ConditionFalse}
	status.ErrorReason, status.ErrorMessage = nil, nil
	phase := cmp.Or(ptr.Deref(status.Phase, ""), machinev1beta1.PhaseProvisioning)
	var invalid *infra.InvalidError
	switch {
	case errors.As(seen.err, &invalid) && !isProvisioned(m):
		phase = machinev1beta1.PhaseFailed
		status.ErrorReason = ptr.To(machinev1beta1.InvalidConfigurationMachineError)
		status.ErrorMessage = ptr.To(invalid.Message)
		exists.Reason, exists.Message = machinev1beta1.InstanceNotCreatedReason, "Instance has not been created"
	case seen.err != nil:
		exists.Status, exists.Reason = corev1.ConditionUnknown, machinev1beta1.ErrorCheckingProviderReason
		exists.Message = fmt.Sprintf("Failed to check if machine exists: %v", seen.err)
	case !seen.instance.Exists && isProvisioned(m):
		phase = machinev1beta1.PhaseFailed
		status.ErrorMessage = ptr.To("can't find created instance")
		exists.Reason, exists.Message = machinev1beta1.InstanceMissingReason, "Instance not found on provider"
	case seen.instance.IsProvisioned || seen.instance.Exists && isProvisioned(m):
		exists.Status = corev1.ConditionTrue
		phase = machinev1beta1.PhaseProvisioned
		if status.NodeRef != nil {
			phase = machinev1beta1.PhaseRunning
		}
		if seen.instance.IsProvisioned {
			status.Addresses = seen.instance.Addresses
		}
	default:
		exists.Reason, exists.Message = machinev1beta1.InstanceNotCreatedReason, "Instance has not been created"
		if seen.instance.Failure != "" {
			exists.Message += ": " + seen.instance.Failure
		}
	}
	if exists.Status == corev1.ConditionFalse {
		exists.Severity = machinev1beta1.ConditionSeverityWarning
	}
	status.Phase = &phase
	setCondition(&status, exists, now)
	return status
}

// isProvisioned says that the machine had an instance once.
func isProvisioned(m *machinev1beta1.Machine) bool {
	return len(m.Status.Addresses) > 0 || ptr.Deref(m.Spec.ProviderID, "") != ""
}

// setCondition sets a condition. The list stays sorted by type, and the time of the last transition as it is if
// nothing else changes.
func setCondition(status *machinev1beta1.MachineStatus, condition machinev1beta1.Condition, now time.Time) {
	condition.LastTransitionTime = ctrlTime(now)
	isIt := func(c machinev1beta1.Condition) bool { return c.Type == condition.Type }
	if i := slices.IndexFunc(status.Conditions, isIt); i >= 0 {
		before := status.Conditions[i]
		before.LastTransitionTime = condition.LastTransitionTime
		if before != condition {
			status.Conditions[i] = condition
		}
	} else {
		status.Conditions = append(status.Conditions, condition)
	}
	slices.SortStableFunc(status.Conditions, func(a, b machinev1beta1.Condition) int {
		return strings.Compare(string(a.Type), string(b.Type))
	})
}

// findCondition returns a condition, or an empty one.
func findCondition(status machinev1beta1.MachineStatus, kind machinev1beta1.ConditionType) machinev1beta1.Condition {
	for _, condition := range status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return machinev1beta1.Condition{}
}

func isDrained(m *machinev1beta1.Machine) bool {
	return findCondition(m.Status, machinev1beta1.MachineDrained).Status == corev1.ConditionTrue
}

func statusDiffers(before, after machinev1beta1.MachineStatus) bool {
	after.LastUpdated = before.LastUpdated
	return !equality.Semantic.DeepEqual(before, after)
}

// ctrlTime is a time as the API stores it.
func ctrlTime(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }
