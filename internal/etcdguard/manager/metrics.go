package manager

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/runlevel/runlevel/internal/etcdguard"
)

// metricPrefix is the prefix of all metrics of the guard.
const metricPrefix = "runlevel_etcd_guard_"

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metricPrefix+name, help, labels, nil)
}

var (
	isReachable = describe("etcd_reachable",
		"1 if the members of etcd are known, 0 if not: the other numbers of members are missing then.")
	wanted       = describe("voters_wanted", "How many voting members etcd is to have.")
	voters       = describe("voters", "How many voting members etcd has.")
	healthy      = describe("voters_healthy", "How many voting members answer a read that needs the quorum.")
	learners     = describe("learners", "How many members are learners, which do not vote.")
	replacements = describe("replacements", "How many voting members are on machines that are being deleted.")
	lastLook     = describe("last_look_timestamp_seconds",
		"When the guard last knew the members of etcd and their machines.")
	held      = describe("held_machines", "How many machines are being deleted that the guard's hook holds.")
	heldSince = describe("held_since_timestamp_seconds",
		"When the deletion of a machine was requested that the guard's hook holds.", "name", "namespace")
)

// The results of a step.
const resultDone, resultTooEarly, resultFailed = "done", "too_early", "failed"

func newStepCounter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: metricPrefix + "steps_total", Help: "How many steps were begun, by action and result.",
	}, []string{"action", "result"})
}

// count counts a step.
func (g *guard) count(step etcdguard.Step, result string) {
	g.steps.WithLabelValues(strings.ReplaceAll(string(step.Action), " ", "_"), result).Inc()
}

// collect sends the metrics of the last observed members.
func (g *guard) collect(metrics chan<- prometheus.Metric) {
	gauge := func(description *prometheus.Desc, value int, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, float64(value), labels...)
	}
	if observedAt := g.observation.lastObserved(); !observedAt.IsZero() {
		gauge(lastLook, int(observedAt.Unix()))
	}
	snapshot, hasSnapshot := g.observation.last()
	count := 0
	for _, m := range snapshot.Machines {
		if !m.HeldSince.IsZero() {
			count++
			namespace, name, _ := strings.Cut(m.Name, "/")
			gauge(heldSince, int(m.HeldSince.Unix()), name, namespace)
		}
	}
	gauge(held, count)
	if !hasSnapshot || snapshot.Problem != "" {
		gauge(isReachable, 0)
		return
	}
	counts := etcdguard.Count(snapshot)
	gauge(isReachable, 1)
	gauge(wanted, snapshot.Voters)
	gauge(voters, counts.Voters)
	gauge(healthy, counts.Healthy)
	gauge(learners, counts.Learners)
	gauge(replacements, counts.Leaving)
}
