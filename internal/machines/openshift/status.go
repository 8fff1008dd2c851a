package openshift

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/infra"
)

// An observation is the observed infrastructure of a machine that is not being deleted.
type observation struct {
	instance infra.Instance
	err      error // why it could not be read or created
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

// liveStatus returns the status of a machine that is not being deleted.
func liveStatus(m *machinev1beta1.Machine, seen observation, now time.Time) machinev1beta1.MachineStatus {
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

// These metrics can't be computed from Machines. Names, labels and buckets are those of the Machine API operator. The label
// reason is one of a few words, while upstream's is the text of the error.
var (
	phaseTransitions = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "mapi_machine_phase_transition_seconds",
		Help:    "How long after its creation a Machine has come to a phase. Deleting is not counted.",
		Buckets: []float64{5, 10, 20, 30, 60, 90, 120, 180, 240, 300, 360, 480, 600},
	}, []string{"phase"})
	failedCreates = failures("create", "Infrastructure could not be made, or looked at before it was.")
	failedUpdates = failures("update", "Infrastructure that was made could not be looked at.")
	failedDeletes = failures("delete", "Infrastructure of a Machine that is being deleted could not be looked at, or asked to go.")
)

func failures(operation, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mapi_instance_" + operation + "_failed", Help: help + " Counted for each try.",
	}, []string{"name", "namespace", "reason"})
}

// registerMetrics registers the metrics. Several managers of one process share them.
func registerMetrics() error {
	for _, collector := range []prometheus.Collector{phaseTransitions, failedCreates, failedUpdates, failedDeletes} {
		err := metrics.Registry.Register(collector)
		if err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// countPhase counts a transition to another phase. Deleting is not counted: its duration would be the age of the machine.
func (r *MachineReconciler) countPhase(m *machinev1beta1.Machine, before string) {
	phase := ptr.Deref(m.Status.Phase, "")
	if phase != before && phase != machinev1beta1.PhaseDeleting {
		phaseTransitions.WithLabelValues(phase).Observe(r.options.Now().Sub(m.CreationTimestamp.Time).Seconds())
	}
}

// countFailure counts a failed call for the infrastructure of a machine.
func countFailure(of *prometheus.CounterVec, m *machinev1beta1.Machine, err error) {
	if err == nil {
		return
	}
	reason := string(cmp.Or(apierrors.ReasonForError(err), metav1.StatusReason("Error")))
	if errors.As(err, new(*infra.InvalidError)) {
		reason = string(machinev1beta1.InvalidConfigurationMachineError)
	}
	of.WithLabelValues(m.Name, m.Namespace, reason).Inc()
}

// forgetFailures removes the counts of a machine that is gone.
func forgetFailures(gone client.ObjectKey) {
	labels := prometheus.Labels{"name": gone.Name, "namespace": gone.Namespace}
	for _, counted := range []*prometheus.CounterVec{failedCreates, failedUpdates, failedDeletes} {
		counted.DeletePartialMatch(labels)
	}
}
