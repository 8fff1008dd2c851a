package metrics

import (
	configv1 "github.com/openshift/api/config/v1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Counters count events. NewCounters returns them: the zero value does not work.
type Counters struct {
	repairs     *prometheus.CounterVec
	missed      prometheus.Counter
	failures    *prometheus.CounterVec
	transitions *prometheus.GaugeVec // named as by the cluster-version operator
}

// NewCounters returns counters that have counted nothing.
func NewCounters() *Counters {
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	return &Counters{
		repairs: prometheus.NewCounterVec(counter("runlevel_repairs_total",
			"How often objects of a kind were repaired, which others had changed or deleted."), []string{"kind"}),
		missed: prometheus.NewCounter(counter("runlevel_missed_changes_total",
			"How often a look at all objects has found a change that no watch had shown.")),
		failures: prometheus.NewCounterVec(counter("cluster_operator_payload_errors",
			"How often an object of a release could not be applied."), []string{"version"}),
		transitions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cluster_operator_condition_transitions",
			Help: "How often a condition of a ClusterOperator has changed its status.",
		}, []string{"name", "condition"}),
	}
}

// Collect sends the counters.
func (c *Counters) Collect(to chan<- prometheus.Metric) {
	for _, collector := range []prometheus.Collector{c.repairs, c.missed, c.failures, c.transitions} {
		collector.Collect(to)
	}
}

// Repaired counts the repair of an object.
func (c *Counters) Repaired(of schema.GroupKind) { c.repairs.WithLabelValues(of.String()).Inc() }

// Missed counts a change that no watch had shown.
func (c *Counters) Missed() { c.missed.Inc() }

// Failed counts an object of a release that could not be applied.
func (c *Counters) Failed(version string) { c.failures.WithLabelValues(label(version)).Inc() }

// Changed counts the conditions of a ClusterOperator that have changed their status. One that is new counts, and one
// that is gone is forgotten, so that a component can't make counts without end.
func (c *Counters) Changed(before, after *configv1.ClusterOperator) {
	was, is := statuses(before), statuses(after)
	for condition := range was {
		if _, exists := is[condition]; !exists {
			c.transitions.DeleteLabelValues(after.Name, label(condition))
		}
	}
	for condition, now := range is {
		if was[condition] != now {
			c.transitions.WithLabelValues(after.Name, label(condition)).Inc()
		}
	}
}

// Gone forgets a ClusterOperator that was deleted.
func (c *Counters) Gone(name string) {
	c.transitions.DeletePartialMatch(prometheus.Labels{"name": name})
}

func statuses(of *configv1.ClusterOperator) map[string]configv1.ConditionStatus {
	all := map[string]configv1.ConditionStatus{}
	for _, condition := range of.Status.Conditions {
		all[string(condition.Type)] = condition.Status
	}
	return all
}
