package manager

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/runlevel/runlevel/pkg/etcdguard"
	"github.com/runlevel/runlevel/pkg/metricsserver"
)

// metricPrefix is that of all metrics of the guard.
const metricPrefix = "runlevel_etcd_guard_"

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(metricPrefix+name, help, nil, nil)
}

var (
	leads        = describe("leader", "1 for the replica that holds the Lease, 0 for one that waits for it.")
	isReachable  = describe("etcd_reachable", "1 if the members of etcd are known, 0 if not: the other numbers of members are missing then.")
	wanted       = describe("voters_wanted", "How many voting members etcd is to have.")
	voters       = describe("voters", "How many voting members etcd has.")
	healthy      = describe("voters_healthy", "How many voting members answer a read that needs the quorum.")
	learners     = describe("learners", "How many members are learners, which do not vote.")
	replacements = describe("replacements", "How many voting members are on machines that are being deleted.")
)

// The results of a step.
const resultDone, resultTooEarly, resultFailed = "done", "too_early", "failed"

func newStepCounter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: metricPrefix + "steps_total", Help: "How many steps were begun, by what they do and what came of it.",
	}, []string{"action", "result"})
}

// count counts a step.
func (g *guard) count(step etcdguard.GuardStep, result string) {
	g.steps.WithLabelValues(strings.ReplaceAll(string(step.Action), " ", "_"), result).Inc()
}

// A memberCollector tells of the members as the guard has seen them last.
type memberCollector struct {
	guard *guard
	leads <-chan struct{} // closed once this replica leads
}

// addMetrics has a manager serve metrics: those of the guard, and those of controller-runtime.
func addMetrics(m ctrl.Manager, g *guard) error {
	own := prometheus.NewRegistry()
	own.MustRegister(&memberCollector{guard: g, leads: m.Elected()}, g.steps)
	return metricsserver.Serve(m, programName, prometheus.Gatherers{own, metrics.Registry}, g.options.Metrics)
}

// Describe tells nothing: which metrics there are depends on whether etcd can be reached.
func (c *memberCollector) Describe(chan<- *prometheus.Desc) {}

// Collect tells of the members.
func (c *memberCollector) Collect(to chan<- prometheus.Metric) {
	gauge := func(of *prometheus.Desc, value int) {
		to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, float64(value))
	}
	select {
	case <-c.leads:
		gauge(leads, 1)
	default:
		gauge(leads, 0)
		return
	}
	seen, isMade := c.guard.seen.last()
	if !isMade || seen.Problem != "" {
		gauge(isReachable, 0)
		return
	}
	counts := etcdguard.Count(seen)
	gauge(isReachable, 1)
	gauge(wanted, seen.Voters)
	gauge(voters, counts.Voters)
	gauge(healthy, counts.Healthy)
	gauge(learners, counts.Learners)
	gauge(replacements, counts.Leaving)
}
