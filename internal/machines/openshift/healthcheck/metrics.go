package healthcheck

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// remediations has the name that OpenShift's controller gives it. What can be read off the status of health checks is
// told by package manager.
var remediations = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "mapi_machinehealthcheck_remediation_success_total", Help: "How many Machines a MachineHealthCheck has deleted.",
}, []string{"name", "namespace"})

// registerMetrics has the process tell of remediations. Several managers of one process share the count.
func registerMetrics() error {
	err := metrics.Registry.Register(remediations)
	if errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		return nil
	}
	return err
}
