package openshift

import (
	"cmp"
	"errors"
	"fmt"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/runlevel/runlevel/internal/machines/infra"
)

// The metrics of this file can't be computed from Machines. Names, labels and buckets are those of the Machine API
// operator. The label reason is one of a few words, while upstream's is the text of the error.
var (
	phaseTransitions = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "mapi_machine_phase_transition_seconds",
		Help:    "How long after its creation a Machine has come to a phase. Deleting is not counted.",
		Buckets: []float64{5, 10, 20, 30, 60, 90, 120, 180, 240, 300, 360, 480, 600},
	}, []string{"phase"})
	failedCreates = failures("create", "Infrastructure could not be created, or read before its creation.")
	failedUpdates = failures("update", "Existing infrastructure could not be read.")
	failedDeletes = failures("delete",
		"Infrastructure of a Machine that is being deleted could not be read or deleted.")
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

// countPhase counts a transition to another phase. Deleting is not counted: its duration would be the age of the
// machine.
func (r *reconciler) countPhase(m *machinev1beta1.Machine, before string) {
	phase := ptr.Deref(m.Status.Phase, "")
	if phase != before && phase != machinev1beta1.PhaseDeleting {
		phaseTransitions.WithLabelValues(phase).Observe(r.options.Now().Sub(m.CreationTimestamp.Time).Seconds())
	}
}

// countFailure counts a failed call for the infrastructure of a machine.
func countFailure(counterVec *prometheus.CounterVec, m *machinev1beta1.Machine, err error) {
	if err == nil {
		return
	}
	reason := string(cmp.Or(apierrors.ReasonForError(err), metav1.StatusReason("Error")))
	if errors.As(err, new(*infra.InvalidError)) {
		reason = string(machinev1beta1.InvalidConfigurationMachineError)
	}
	counterVec.WithLabelValues(m.Name, m.Namespace, reason).Inc()
}

// forgetFailures removes the counts of a deleted machine.
func forgetFailures(machine client.ObjectKey) {
	labels := prometheus.Labels{"name": machine.Name, "namespace": machine.Namespace}
	for _, counted := range []*prometheus.CounterVec{failedCreates, failedUpdates, failedDeletes} {
		counted.DeletePartialMatch(labels)
	}
}
