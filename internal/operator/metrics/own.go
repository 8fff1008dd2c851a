package metrics

import (
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/pkg/apply"
)

// Runlevel's own metrics.
var (
	applyDuration = describe("runlevel_apply_duration_seconds", "How long the last complete apply of a mode took.",
		"mode")
	nodeDuration = describe("runlevel_node_duration_seconds",
		"How long a node of the graph took in the last complete apply of a mode, if it took 0.1 s or more.",
		"mode", "node")
	problemCount = describe("runlevel_problems",
		"How many objects the operator waits for ('waiting'), can't apply or repair ('failing'), repairs again and "+
			"again because another writer changes them ('contested'), or has deleted while they still exist "+
			"('deleting').",
		"problem")
	problemSince = describe("runlevel_problem_timestamp_seconds",
		"Since when there is a problem with an object. Of each problem, the oldest are named.",
		"problem", "kind", "namespace", "name")
	fullPass = describe("runlevel_last_full_pass_timestamp_seconds",
		"When all objects of the release were last applied, or compared with the release.")
	unwatched = describe("runlevel_unwatched_kinds",
		"How many kinds of the release can't be watched, so that changes of their objects are not seen.")
)

// maxProblems limits the objects with the same problem that are named.
const maxProblems = 20

// Collect sends the metrics.
func (r Reading) Collect(s sink) {
	s.version(r.Version)
	for i := range r.Operators {
		s.operator(&r.Operators[i])
	}
	if !r.Retrieved.IsZero() {
		s.gauge(retrieval, moment(r.Retrieved), "")
	}
	for mode, took := range r.Durations {
		s.gauge(applyDuration, took.All, mode)
		for node, seconds := range took.Nodes {
			s.gauge(nodeDuration, seconds, mode, node)
		}
	}
	if r.Applied == nil {
		return
	}
	s.payload(r.Applied)
	s.addProblems(r.Applied)
	s.gauge(unwatched, float64(r.Unwatched))
	if !r.FullPass.IsZero() {
		s.gauge(fullPass, moment(r.FullPass))
	}
}

// addProblems adds the objects with problems: how many there are in each state, and the oldest by their names.
func (s sink) addProblems(applied *clusterversion.AppliedRelease) {
	problems := map[string][]apply.Wait{"waiting": nil, "failing": nil, "contested": nil, "deleting": nil}
	for _, problem := range applied.Problems {
		switch {
		case !problem.HasObject():
		case problem.IsContested:
			problems["contested"] = append(problems["contested"], problem.Wait)
		case problem.IsWait:
			problems["waiting"] = append(problems["waiting"], problem.Wait)
		default:
			problems["failing"] = append(problems["failing"], problem.Wait)
		}
	}
	for _, d := range applied.Deletes {
		problems["deleting"] = append(problems["deleting"], apply.Wait{ID: d.ID, Since: d.RequestedAt.Time})
	}
	for state, objects := range problems {
		slices.SortStableFunc(objects, func(a, b apply.Wait) int { return a.Since.Compare(b.Since) })
		s.gauge(problemCount, float64(len(objects)), state)
		for _, o := range objects[:min(maxProblems, len(objects))] {
			s.gauge(problemSince, moment(o.Since), state, o.ID.GroupKind().String(), o.ID.Namespace, o.ID.Name)
		}
	}
}

// Counters count events. NewCounters returns them: the zero value does not work.
type Counters struct {
	repairs     *prometheus.CounterVec
	missed      prometheus.Counter
	failures    *prometheus.CounterVec
	transitions *prometheus.GaugeVec // named as by the cluster-version operator
}

// NewCounters returns counters that are zero.
func NewCounters() *Counters {
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	return &Counters{
		repairs: prometheus.NewCounterVec(counter("runlevel_repairs_total",
			"How often objects of a kind were repaired after others had changed or deleted them."), []string{"kind"}),
		missed: prometheus.NewCounter(counter("runlevel_missed_changes_total",
			"How often a check of all objects has found a change that no watch had shown.")),
		failures: prometheus.NewCounterVec(counter("cluster_operator_payload_errors",
			"How often an object of a release could not be applied."), []string{"version"}),
		transitions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cluster_operator_condition_transitions",
			Help: "How often a condition of a ClusterOperator has changed its status.",
		}, []string{"name", "condition"}),
	}
}

// Collect sends the counters.
func (c *Counters) Collect(metrics chan<- prometheus.Metric) {
	for _, collector := range []prometheus.Collector{c.repairs, c.missed, c.failures, c.transitions} {
		collector.Collect(metrics)
	}
}

// Repaired counts the repair of an object.
func (c *Counters) Repaired(kind schema.GroupKind) { c.repairs.WithLabelValues(kind.String()).Inc() }

// Missed counts a change that no watch had shown.
func (c *Counters) Missed() { c.missed.Inc() }

// Failed counts an object of a release that could not be applied.
func (c *Counters) Failed(version string) { c.failures.WithLabelValues(label(version)).Inc() }

// Changed counts the conditions of a ClusterOperator that have changed their status. A new one counts, and the count of
// a removed one is deleted: a component could otherwise create counts without end.
func (c *Counters) Changed(before, after *configv1.ClusterOperator) {
	statusBefore, statusAfter := statuses(before), statuses(after)
	for condition := range statusBefore {
		if _, exists := statusAfter[condition]; !exists {
			c.transitions.DeleteLabelValues(after.Name, label(condition))
		}
	}
	for condition, status := range statusAfter {
		if statusBefore[condition] != status {
			c.transitions.WithLabelValues(after.Name, label(condition)).Inc()
		}
	}
}

// Deleted deletes the counts of a ClusterOperator that was deleted.
func (c *Counters) Deleted(name string) {
	c.transitions.DeletePartialMatch(prometheus.Labels{"name": name})
}

func statuses(operator *configv1.ClusterOperator) map[string]configv1.ConditionStatus {
	all := map[string]configv1.ConditionStatus{}
	for _, condition := range operator.Status.Conditions {
		all[string(condition.Type)] = condition.Status
	}
	return all
}
