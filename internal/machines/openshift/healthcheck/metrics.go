package healthcheck

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// remediations has the name of OpenShift's metric. Package manager has the metrics that are computed from the status of
// health checks.
var remediations = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "mapi_machinehealthcheck_remediation_success_total", Help: "How many Machines a MachineHealthCheck has deleted.",
}, []string{"name", "namespace"})

// registerMetrics registers the metric. Several managers of one process share it.
func registerMetrics() error {
	err := metrics.Registry.Register(remediations)
	if errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		return nil
	}
	return err
}
