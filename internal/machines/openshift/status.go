package openshift

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/infra"
)

// An observation is the observed infrastructure of a machine not being deleted.
type observation struct {
	instance infra.Instance
	err      error // error of reading or creating the infrastructure
}

// hookConditions sets the conditions that report which hooks hold a machine, or will hold its deletion.
func hookConditions(m *machinev1beta1.Machine, status *machinev1beta1.MachineStatus, now time.Time) {
	hooks := m.Spec.LifecycleHooks
	setHooks := func(kind machinev1beta1.ConditionType, operation string, hooks []machinev1beta1.LifecycleHook) {
		condition := machinev1beta1.Condition{Type: kind, Status: corev1.ConditionTrue}
		if len(hooks) > 0 {
			condition.Status, condition.Reason = corev1.ConditionFalse, machinev1beta1.MachineHookPresent
			condition.Severity = machinev1beta1.ConditionSeverityWarning
			condition.Message = fmt.Sprintf("%s operation currently blocked by: %+v", operation, hooks)
		}
		status.Conditions = conditions.Set(status.Conditions, condition, now)
	}
	setHooks(machinev1beta1.MachineDrainable, "Drain", hooks.PreDrain)
	setHooks(machinev1beta1.MachineTerminable, "Terminate", hooks.PreTerminate)
}

// liveStatus returns the status of a machine not being deleted.
func liveStatus(m *machinev1beta1.Machine, observed observation, now time.Time) machinev1beta1.MachineStatus {
	status := *m.Status.DeepCopy()
	hookConditions(m, &status, now)
	if ptr.Deref(status.Phase, "") == machinev1beta1.PhaseFailed { // final
		return status
	}
	exists := machinev1beta1.Condition{Type: machinev1beta1.InstanceExistsCondition, Status: corev1.ConditionFalse}
	status.ErrorReason, status.ErrorMessage = nil, nil
	phase := cmp.Or(ptr.Deref(status.Phase, ""), machinev1beta1.PhaseProvisioning)
	var invalid *infra.InvalidError
	switch {
	case errors.As(observed.err, &invalid) && !isProvisioned(m):
		phase = machinev1beta1.PhaseFailed
		status.ErrorReason = ptr.To(machinev1beta1.InvalidConfigurationMachineError)
		status.ErrorMessage = ptr.To(invalid.Message)
		exists.Reason, exists.Message = machinev1beta1.InstanceNotCreatedReason, "Instance has not been created"
	case observed.err != nil:
		exists.Status, exists.Reason = corev1.ConditionUnknown, machinev1beta1.ErrorCheckingProviderReason
		exists.Message = fmt.Sprintf("Failed to check if machine exists: %v", observed.err)
	case !observed.instance.Exists && isProvisioned(m):
		phase = machinev1beta1.PhaseFailed
		status.ErrorMessage = ptr.To("can't find created instance")
		exists.Reason, exists.Message = machinev1beta1.InstanceMissingReason, "Instance not found on provider"
	case observed.instance.IsProvisioned || observed.instance.Exists && isProvisioned(m):
		exists.Status = corev1.ConditionTrue
		phase = machinev1beta1.PhaseProvisioned
		if status.NodeRef != nil {
			phase = machinev1beta1.PhaseRunning
		}
		if observed.instance.IsProvisioned {
			status.Addresses = observed.instance.Addresses
		}
	default:
		exists.Reason, exists.Message = machinev1beta1.InstanceNotCreatedReason, "Instance has not been created"
		if observed.instance.Failure != "" {
			exists.Message += ": " + observed.instance.Failure
		}
	}
	if exists.Status == corev1.ConditionFalse {
		exists.Severity = machinev1beta1.ConditionSeverityWarning
	}
	status.Phase = &phase
	status.Conditions = conditions.Set(status.Conditions, exists, now)
	return status
}

// isProvisioned reports whether the machine has ever had an instance.
func isProvisioned(m *machinev1beta1.Machine) bool {
	return len(m.Status.Addresses) > 0 || ptr.Deref(m.Spec.ProviderID, "") != ""
}

func isDrained(m *machinev1beta1.Machine) bool {
	return conditions.Find(m.Status.Conditions, machinev1beta1.MachineDrained).Status == corev1.ConditionTrue
}

func statusDiffers(before, after machinev1beta1.MachineStatus) bool {
	after.LastUpdated = before.LastUpdated
	return !equality.Semantic.DeepEqual(before, after)
}
