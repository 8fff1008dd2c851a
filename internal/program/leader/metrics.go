package leader

import (
	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// ControllerMetrics are the metrics of a program, beside those of controller-runtime.
type ControllerMetrics struct {
	Leads   string                         // the name of the metric that says whether the replica leads
	Collect func(chan<- prometheus.Metric) // what the replica that leads tells, when it is asked
	Counted []prometheus.Collector         // what is counted when it happens
}

func (c ControllerMetrics) gatherer(m ctrl.Manager) prometheus.Gatherer {
	own := prometheus.NewRegistry()
	own.MustRegister(&leaderCollector{
		leads:   prometheus.NewDesc(c.Leads, "1 for the replica that holds the Lease, 0 for one that waits for it.", nil, nil),
		elected: m.Elected(), collect: c.Collect,
	})
	own.MustRegister(c.Counted...)
	return prometheus.Gatherers{own, metrics.Registry}
}

// A leaderCollector says whether the replica leads, and only then what the controllers tell.
type leaderCollector struct {
	leads   *prometheus.Desc
	elected <-chan struct{} // closed once this replica leads
	collect func(chan<- prometheus.Metric)
}

// Describe tells nothing: which metrics there are depends on what there is.
func (c *leaderCollector) Describe(chan<- *prometheus.Desc) {}

// Collect tells how things are at the moment.
func (c *leaderCollector) Collect(to chan<- prometheus.Metric) {
	select {
	case <-c.elected:
		to <- prometheus.MustNewConstMetric(c.leads, prometheus.GaugeValue, 1)
		c.collect(to)
	default:
		to <- prometheus.MustNewConstMetric(c.leads, prometheus.GaugeValue, 0)
	}
}
