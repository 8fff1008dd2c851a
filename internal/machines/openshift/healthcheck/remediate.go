package healthcheck

import (
	"context"
	"errors"
	"fmt"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/runlevel/runlevel/internal/machines/patch"
)

// With this annotation of a MachineHealthCheck, a bare-metal controller remediates hosts, and only failed Machines are
// deleted.
const (
	strategyAnnotation = "machine.openshift.io/remediation-strategy"
	externalStrategy   = "external-baremetal"
)

// remediate deletes a Machine that a controller replaces, or requests remediation of its host. The Machine is not from
// the cache: a Machine that has just lost its controller would not be replaced.
func (r *reconciler) remediate(
	ctx context.Context, check *machinev1beta1.MachineHealthCheck, machine *machinev1beta1.Machine, reason string,
) error {
	if check.Spec.RemediationTemplate != nil {
		return r.createRemediation(ctx, check, machine)
	}
	if check.Annotations[strategyAnnotation] == externalStrategy && !hasFailed(machine) {
		return r.annotate(ctx, machine)
	}
	if metav1.GetControllerOf(machine) == nil {
		r.recorder.Eventf(machine, nil, corev1.EventTypeNormal, "SkippedNoController", "Remediate",
			"Machine %s is unhealthy (%s), and is not deleted: it has no controller owner that would replace it",
			machine.Name, reason)
		return nil
	}
	err := patch.DeleteWithLock(ctx, r.client, machine)
	switch {
	case apierrors.IsNotFound(err): // it no longer exists
		return nil
	case apierrors.IsConflict(err): // it is examined again
		return err
	case err != nil:
		r.recorder.Eventf(machine, nil, corev1.EventTypeWarning, "MachineDeletionFailed", "Remediate",
			"Machine %s remediation failed: unable to delete Machine object: %v", machine.Name, err)
		return fmt.Errorf("delete it: %w", err)
	}
	remediations.WithLabelValues(check.Name, check.Namespace).Inc()
	ctrl.LoggerFrom(ctx).Info("unhealthy Machine deleted", "machine", machine.Name, "reason", reason)
	r.recorder.Eventf(machine, nil, corev1.EventTypeNormal, "MachineDeleted", "Remediate",
		"Machine %s has been remediated by requesting to delete Machine object: %s", machine.Name, reason)
	return nil
}

func (r *reconciler) annotate(ctx context.Context, machine *machinev1beta1.Machine) error {
	if _, isRequested := machine.Annotations[ExternalRemediationAnnotation]; isRequested {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:""}}}`, ExternalRemediationAnnotation)
	if err := r.client.Patch(ctx, machine.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		r.recorder.Eventf(machine, nil, corev1.EventTypeWarning, "ExternalAnnotationFailed", "Remediate",
			"Requesting external remediation of node associated with machine %s failed: %v", machine.Name, err)
		return fmt.Errorf("ask for external remediation: %w", err)
	}
	r.recorder.Eventf(machine, nil, corev1.EventTypeNormal, "ExternalAnnotationAdded", "Remediate",
		"Requesting external remediation of node associated with machine %s", machine.Name)
	return nil
}

// remediations has the name of OpenShift's metric. Package manager has the metrics that are computed from the status of
// health checks.
var remediations = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "mapi_machinehealthcheck_remediation_success_total",
	Help: "How many Machines a MachineHealthCheck has deleted.",
}, []string{"name", "namespace"})

// registerMetrics registers the metric. Several managers of one process share it.
func registerMetrics() error {
	err := metrics.Registry.Register(remediations)
	if errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		return nil
	}
	return err
}
