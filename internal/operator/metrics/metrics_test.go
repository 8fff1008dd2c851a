package metrics_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/operator/metrics"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// at returns a moment, in seconds since 1970.
func at(second int64) metav1.Time { return metav1.Unix(second, 0) }

func condition(
	kind string, status configv1.ConditionStatus, reason string, since int64,
) configv1.ClusterOperatorStatusCondition {
	return configv1.ClusterOperatorStatusCondition{
		Type: configv1.ClusterStatusConditionType(kind), Status: status, Reason: reason, LastTransitionTime: at(since),
		Message: "of no interest here",
	}
}

// A scrape collects the metrics of a reading and of counters.
type scrape struct {
	metrics.Reading
	counters *metrics.Counters
}

func (s scrape) Describe(chan<- *prometheus.Desc) {}

func (s scrape) Collect(ms chan<- prometheus.Metric) {
	s.Reading.Collect(ms)
	if s.counters != nil {
		s.counters.Collect(ms)
	}
}

// lines returns the samples, sorted.
func (s scrape) lines() []string {
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(answer,
		httptest.NewRequest("GET", "/metrics", nil))
	lines := strings.Split(strings.TrimSpace(answer.Body.String()), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") })
	slices.Sort(lines)
	return lines
}

// expect compares the samples with those that are wanted, one in a line.
func expect(t *testing.T, got []string, want string) {
	t.Helper()
	wanted := strings.Split(strings.ReplaceAll(strings.TrimSpace(want), "\t", ""), "\n")
	slices.Sort(wanted)
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// updating is a cluster in the middle of its second update, which fails.
func updating() metrics.Reading {
	done := at(3000)
	first := at(1500)
	version := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(1000)}}
	version.Spec = configv1.ClusterVersionSpec{
		Channel:       "stable",
		DesiredUpdate: &configv1.Update{Image: "example.com/r@sha256:3"},
	}
	version.Status = configv1.ClusterVersionStatus{
		Desired: configv1.Release{Version: "1.0.2", Image: "example.com/r@sha256:3"},
		History: []configv1.UpdateHistory{
			{State: configv1.PartialUpdate, Version: "1.0.2", Image: "example.com/r@sha256:3", StartedTime: at(4000)},
			{
				State:          configv1.CompletedUpdate,
				Version:        "1.0.1",
				Image:          "example.com/r@sha256:2",
				StartedTime:    at(2000),
				CompletionTime: &done,
			},
			{
				State:          configv1.CompletedUpdate,
				Version:        "1.0.0",
				Image:          "example.com/r@sha256:1",
				StartedTime:    at(1000),
				CompletionTime: &first,
			},
		},
		Conditions: []configv1.ClusterOperatorStatusCondition{
			condition("Available", configv1.ConditionTrue, "", 1500),
			condition("Failing", configv1.ConditionTrue, "ClusterOperatorDegraded", 4500),
			condition("RetrievedUpdates", configv1.ConditionTrue, "", 1500),
			condition("ReleaseAccepted", configv1.ConditionUnknown, "", 1500),
		},
		AvailableUpdates: []configv1.Release{{Version: "1.0.3"}},
		ConditionalUpdates: []configv1.ConditionalUpdate{{Release: configv1.Release{Version: "1.1.0"},
			Conditions: []metav1.Condition{
				{Type: "Recommended", Status: metav1.ConditionFalse, Reason: "SlowDisks", LastTransitionTime: at(3500)},
			}}},
		ConditionalUpdateRisks: []configv1.ConditionalUpdateRisk{
			{Name: "SlowDisks", Conditions: []metav1.Condition{
				{Type: "Applies", Status: metav1.ConditionTrue, Reason: "Match"},
			}},
			{Name: "Metered", Conditions: []metav1.Condition{
				{Type: "Applies", Status: metav1.ConditionUnknown, Reason: "EvaluationFailed"},
			}},
			{Name: "OldDisks", Conditions: []metav1.Condition{
				{Type: "Applies", Status: metav1.ConditionFalse, Reason: "NotMatch"},
			}},
		},
		Capabilities: configv1.ClusterVersionCapabilitiesStatus{
			EnabledCapabilities: []configv1.ClusterVersionCapability{"Console"},
			KnownCapabilities:   []configv1.ClusterVersionCapability{"Build", "Console"},
		},
	}
	return metrics.Reading{Version: version}
}

// TestMetricsOfTheClusterVersionOperator are those that its dashboards and alerts ask for, labels and all.
func TestMetricsOfTheClusterVersionOperator(t *testing.T) {
	reading := updating()
	reading.Applied = &clusterversion.AppliedRelease{Release: configv1.Release{Version: "1.0.2"}, Done: 40, Total: 62}
	reading.Retrieved = at(2500).Time
	reading.Operators = []configv1.ClusterOperator{
		{ObjectMeta: metav1.ObjectMeta{Name: "till"}, Status: configv1.ClusterOperatorStatus{
			Versions: []configv1.OperandVersion{{Name: "web", Version: "7"}, {Name: "operator", Version: "1.0.1"}},
			Conditions: []configv1.ClusterOperatorStatusCondition{condition("Available", configv1.ConditionTrue,
				"AsExpected", 1), condition("Degraded", configv1.ConditionTrue, "NoDisk", 2)},
		}},
		{ObjectMeta: metav1.ObjectMeta{Name: "new"}},
	}
	expect(t, of("cluster_", scrape{Reading: reading}.lines()), `
		cluster_operator_conditions{condition="Available",name="till",reason="AsExpected"} 1
		cluster_operator_conditions{condition="Available",name="version",reason=""} 1
		cluster_operator_conditions{condition="Degraded",name="till",reason="NoDisk"} 1
		cluster_operator_conditions{condition="Failing",name="version",reason="ClusterOperatorDegraded"} 1
		cluster_operator_conditions{condition="RetrievedUpdates",name="version",reason=""} 1
		cluster_operator_up{name="new",reason="NoAvailableCondition",version=""} 0
		cluster_operator_up{name="till",reason="AsExpected",version="1.0.1"} 1
		cluster_operator_up{name="version",reason="",version="1.0.1"} 1
		cluster_version_available_updates{channel="stable",upstream="<default>"} 1
		cluster_version_capability{name="Build"} 0
		cluster_version_capability{name="Console"} 1
		cluster_version_conditional_update_condition_seconds{condition="Recommended",reason="SlowDisks",status="False",version="1.1.0"} 3500
		cluster_version_operator_update_retrieval_timestamp_seconds{name=""} 2500
		cluster_version_payload{type="applied",version="1.0.2"} 40
		cluster_version_payload{type="pending",version="1.0.2"} 22
		cluster_version_risk_conditions{condition="Applies",reason="EvaluationFailed",risk="Metered"} -1
		cluster_version_risk_conditions{condition="Applies",reason="Match",risk="SlowDisks"} 1
		cluster_version_risk_conditions{condition="Applies",reason="NotMatch",risk="OldDisks"} 0
		cluster_version{from_version="",image="example.com/r@sha256:1",type="initial",version="1.0.0"} 1000
		cluster_version{from_version="1.0.0",image="example.com/r@sha256:2",type="completed",version="1.0.1"} 3000
		cluster_version{from_version="1.0.0",image="example.com/r@sha256:3",type="cluster",version="1.0.2"} 1000
		cluster_version{from_version="1.0.1",image="example.com/r@sha256:3",type="current",version="1.0.2"} 0
		cluster_version{from_version="1.0.1",image="example.com/r@sha256:3",type="failure",version="1.0.2"} 4500
		cluster_version{from_version="1.0.1",image="example.com/r@sha256:3",type="updating",version="1.0.2"} 4000`)
}

// of returns the samples whose names begin with a prefix.
func of(prefix string, lines []string) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, prefix) })
}

// TestUnstartedReleaseIsDesired: a requested release that has not started is the desired and the failing one, unless it
// is that of a preflight.
func TestUnstartedReleaseIsDesired(t *testing.T) {
	reading := updating()
	reading.Version.Spec.DesiredUpdate.Image = "example.com/r@sha256:4"
	got := strings.Join(scrape{Reading: reading}.lines(), "\n")
	for _, want := range []string{
		`cluster_version{from_version="1.0.1",image="example.com/r@sha256:4",type="desired",version=""} 4500`,
		`cluster_version{from_version="1.0.1",image="example.com/r@sha256:4",type="failure",version=""} 4500`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %s in\n%s", want, got)
		}
	}
	reading.Version.Spec.DesiredUpdate.Mode = configv1.UpdateModePreflight
	if got := strings.Join(scrape{Reading: reading}.lines(), "\n"); strings.Contains(got, "sha256:4") {
		t.Errorf("the release of a preflight is desired:\n%s", got)
	}
}

func TestWithoutAClusterVersion(t *testing.T) {
	expect(t, scrape{}.lines(), `
		cluster_operator_conditions{condition="Available",name="version",reason="ClusterVersionNotFound"} 0
		cluster_operator_up{name="version",reason="ClusterVersionNotFound",version=""} 0`)
}

func TestMetricsOfRunlevel(t *testing.T) {
	deployment := kinds.ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	reading := metrics.Reading{
		Applied: &clusterversion.AppliedRelease{
			IsComplete: true,
			Total:      3,
			Problems: []clusterversion.ReleaseProblem{
				{Wait: apply.Wait{ID: deployment, Since: at(200).Time}, IsContested: true},
			},
			Deletes: []precondition.Delete{{
				Tombstone: record.Tombstone{ID: kinds.ID{Kind: "Namespace", Name: "old"}, RequestedAt: at(100)},
			}},
		},
		Durations: map[string]record.Durations{"Updating": {
			All:   12.5,
			Nodes: map[string]float64{"level 10, web": 3.1},
		}},
		Unwatched: 1, FullPass: time.Unix(300, 0),
	}
	counters := metrics.NewCounters()
	counters.Repaired(deployment.GroupKind())
	counters.Failed("1.0.1")
	expect(t, of("runlevel_", scrape{reading, counters}.lines()), `
		runlevel_apply_duration_seconds{mode="Updating"} 12.5
		runlevel_last_full_pass_timestamp_seconds 300
		runlevel_missed_changes_total 0
		runlevel_node_duration_seconds{mode="Updating",node="level 10, web"} 3.1
		runlevel_problem_timestamp_seconds{kind="Deployment.apps",name="web",namespace="shop",problem="contested"} 200
		runlevel_problem_timestamp_seconds{kind="Namespace",name="old",namespace="",problem="deleting"} 100
		runlevel_problems{problem="contested"} 1
		runlevel_problems{problem="deleting"} 1
		runlevel_problems{problem="failing"} 0
		runlevel_problems{problem="waiting"} 0
		runlevel_repairs_total{kind="Deployment.apps"} 1
		runlevel_unwatched_kinds 1`)
}

// TestOfManyProblemsTheOldestAreNamed: a release with a thousand problems does not create a thousand series.
func TestOfManyProblemsTheOldestAreNamed(t *testing.T) {
	reading := metrics.Reading{Applied: &clusterversion.AppliedRelease{}}
	for i := range 1000 {
		id := kinds.ID{Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprint("map-", i)}
		reading.Applied.Problems = append(reading.Applied.Problems,
			clusterversion.ReleaseProblem{Wait: apply.Wait{ID: id, Since: time.Unix(int64(5000-i), 0)}})
	}
	named := of("runlevel_problem_timestamp_seconds", scrape{Reading: reading}.lines())
	if len(named) != 20 || !slices.ContainsFunc(named, func(line string) bool {
		return strings.Contains(line, `"map-999"`)
	}) {
		t.Errorf("%d are named: %v", len(named), named)
	}
}

// TestAHostileComponent reports a condition twice, and a reason that never ends. The other metrics are complete.
func TestAHostileComponent(t *testing.T) {
	reading := updating()
	hostile := condition("Degraded", configv1.ConditionTrue, strings.Repeat("x\n\xff", 1<<16), 1)
	reading.Operators = []configv1.ClusterOperator{{ObjectMeta: metav1.ObjectMeta{Name: "till"},
		Status: configv1.ClusterOperatorStatus{
			Conditions: []configv1.ClusterOperatorStatusCondition{hostile, hostile, hostile},
		}}}
	lines := scrape{Reading: reading}.lines()
	if len(of("cluster_version{", lines)) != 6 {
		t.Errorf("the metrics lack the ClusterVersion: %v", lines)
	}
	for _, line := range lines {
		if len(line) > 1000 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

// TestTransitionsAreRemovedWithTheirConditions: otherwise, their number would grow without bounds.
func TestTransitionsAreRemovedWithTheirConditions(t *testing.T) {
	operator := func(conditions ...configv1.ClusterOperatorStatusCondition) *configv1.ClusterOperator {
		return &configv1.ClusterOperator{
			ObjectMeta: metav1.ObjectMeta{Name: "till"},
			Status:     configv1.ClusterOperatorStatus{Conditions: conditions},
		}
	}
	up, down := operator(condition("Available", configv1.ConditionTrue, "", 1)),
		operator(condition("Available", configv1.ConditionFalse, "", 2))
	counters := metrics.NewCounters()
	transitions := func() []string {
		return of("cluster_operator_condition_transitions", scrape{counters: counters}.lines())
	}
	counters.Changed(up, down)
	counters.Changed(down, down)
	counters.Changed(down, up)
	expect(t, transitions(), `cluster_operator_condition_transitions{condition="Available",name="till"} 2`)
	for i := range 100 {
		counters.Changed(up, operator(condition(fmt.Sprint("Made", i), configv1.ConditionTrue, "", 3)))
		counters.Changed(operator(condition(fmt.Sprint("Made", i), configv1.ConditionTrue, "", 3)), up)
	}
	expect(t, transitions(), `cluster_operator_condition_transitions{condition="Available",name="till"} 1`)
	counters.Deleted("till")
	if remaining := transitions(); len(remaining) > 0 {
		t.Errorf("transitions are %v, want none", remaining)
	}
}
