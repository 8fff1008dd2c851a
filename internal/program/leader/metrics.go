package leader

import (
	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Metrics are the metrics of a program, beside those of controller-runtime.
type Metrics struct {
	Leads   string                         // the name of the metric with the value 1 for the leader
	Collect func(chan<- prometheus.Metric) // collects the metrics of the leader
	Counted []prometheus.Collector         // counters of events
}

func (c Metrics) gatherer(m ctrl.Manager) prometheus.Gatherer {
	own := prometheus.NewRegistry()
	own.MustRegister(&leaderCollector{
		leads: prometheus.NewDesc(c.Leads, "1 for the replica that holds the Lease, 0 for one that waits for it.",
			nil, nil),
		elected: m.Elected(), collect: c.Collect,
	})
	own.MustRegister(c.Counted...)
	return prometheus.Gatherers{own, metrics.Registry}
}

// A leaderCollector collects whether the replica is the leader, and in the leader the metrics of the controllers.
type leaderCollector struct {
	leads   *prometheus.Desc
	elected <-chan struct{} // closed once this replica leads
	collect func(chan<- prometheus.Metric)
}

// Describe sends no descriptors: which metrics exist depends on the cluster.
func (c *leaderCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the current metrics.
func (c *leaderCollector) Collect(ms chan<- prometheus.Metric) {
	select {
	case <-c.elected:
		ms <- prometheus.MustNewConstMetric(c.leads, prometheus.GaugeValue, 1)
		c.collect(ms)
	default:
		ms <- prometheus.MustNewConstMetric(c.leads, prometheus.GaugeValue, 0)
	}
}
