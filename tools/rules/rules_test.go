// Package rules tests the alerts of install/monitoring and manifests/monitoring with Prometheus' own engine: when they
// fire, when they do not, and their summaries.
package rules

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"go.yaml.in/yaml/v3"
)

// files are the files with alerts, and the pages that explain them.
var files = map[string]string{
	"../../install/monitoring/0000_90_runlevel_01_prometheusrule.yaml":                              "docs/monitoring.md",
	"../../manifests/monitoring/0000_90_machine-controller_01_prometheusrule.yaml":                  "docs/machines.md",
	"../../manifests/etcd-quorum-guard/monitoring/0000_90_etcd-quorum-guard_01_prometheusrule.yaml": "docs/etcd-quorum-guard.md",
}

// A scenario contains time series, and the time at which they make an alert fire. Series have the syntax of promtool,
// with a value for each minute; the first value is for time 0.
type scenario struct {
	alert   string
	series  []string
	quiet   time.Duration // the alert does not fire yet at this time; 0 if it never does
	fires   time.Duration // the alert fires at this time; 0 for never
	summary string        // summary of the alert; empty for any
}

const (
	nodes   = `kube_node_info{node="node-4"} 1x600`
	created = "mapi_machine_created_timestamp_seconds"
	guard   = "runlevel_etcd_guard_"
	set     = "runlevel_controlplane_"
	cluster = `{kind="ControlPlaneMachineSet",namespace="shop",name="cluster"}`
	active  = set +
		`progressing{kind="ControlPlaneMachineSet",namespace="shop",name="cluster",state="Active",strategy="RollingUpdate"} 1x400`
	web4 = `{namespace="shop",name="web-4",node="node-4",phase="Running"} 1700000000x600`
)

var scenarios = []scenario{
	{"ClusterVersionOperatorDown", []string{"up 1x30"}, 9 * time.Minute, 11 * time.Minute,
		"No operator manages the release."},
	{"ClusterVersionOperatorDown", []string{`runlevel_leader{pod="a"} 0x30`, `runlevel_leader{pod="b"} 0x30`},
		9 * time.Minute, 11 * time.Minute, ""},
	{"ClusterVersionOperatorDown", []string{`runlevel_leader{pod="a"} 1x5 0x25`, `runlevel_leader{pod="b"} 0x7 1x23`},
		29 * time.Minute, 0, ""},
	{"RunlevelNoFullPass", []string{"runlevel_last_full_pass_timestamp_seconds 0x600"}, 3 * time.Hour,
		200 * time.Minute, "The objects of the release were not checked for 3h 20m 0s."},
	{"RunlevelNoFullPass", []string{"runlevel_last_full_pass_timestamp_seconds 0x600",
		`runlevel_problems{problem="waiting"} 1x600`}, 300 * time.Minute, 0, ""},
	{"RunlevelKindsUnwatched", []string{"runlevel_unwatched_kinds 0x5 2x30"}, 15 * time.Minute, 17 * time.Minute,
		"Changes of 2 kinds are not watched."},
	{"CannotRetrieveUpdates",
		[]string{`cluster_operator_conditions{name="version",condition="RetrievedUpdates",reason="RemoteFailed"} 0x90`},
		59 * time.Minute, 61 * time.Minute, "Updates can't be retrieved, because of RemoteFailed."},
	{"CannotRetrieveUpdates",
		[]string{`cluster_operator_conditions{name="version",condition="RetrievedUpdates",reason="NoUpstream"} 0x90`},
		80 * time.Minute, 0, ""},
	{"CannotRetrieveUpdates",
		[]string{`cluster_operator_conditions{name="version",condition="RetrievedUpdates",reason="NoChannel"} 0x90`},
		80 * time.Minute, 0, ""},
	{"UpdateAvailable", []string{
		`cluster_version_available_updates{channel="stable",upstream="https://example.com"} 2x9`,
	}, 0, time.Minute, "Channel stable has 2 updates."},
	{"UpdateAvailable", []string{
		`cluster_version_available_updates{channel="stable",upstream="https://example.com"} 0x9`,
	}, 5 * time.Minute, 0, ""},
	{"OpenShiftUpdateRiskMightApply",
		[]string{`cluster_version_risk_conditions{condition="Applies",risk="SlowDisks",reason="EvaluationFailed"} -1x30`},
		14 * time.Minute, 16 * time.Minute, "The risk SlowDisks of an update might apply to the cluster."},
	{"OpenShiftUpdateRiskMightApply",
		[]string{`cluster_version_risk_conditions{condition="Applies",risk="SlowDisks",reason="NotMatch"} 0x30`},
		25 * time.Minute, 0, ""},
	{"ClusterReleaseNotAccepted",
		[]string{
			`cluster_operator_conditions{name="version",condition="ReleaseAccepted",reason="PreconditionChecks"} 0x90`,
		}, 59 * time.Minute, 61 * time.Minute,
		"The requested release was not accepted, because of PreconditionChecks."},
	{"ClusterNotUpgradeable",
		[]string{`cluster_operator_conditions{name="version",condition="Upgradeable",reason="MultipleReasons"} 0x90`},
		59 * time.Minute, 61 * time.Minute, "Minor updates are blocked."},
	{"RunlevelUpdateStuck",
		[]string{`runlevel_problem_timestamp_seconds{problem="waiting",kind="Deployment.apps",namespace="shop",name="web"} 60x120`}, 65 * time.Minute, 70 * time.Minute, "Deployment.apps shop/web has been waiting for 1h 9m 0s."},
	// the start is unknown
	{"RunlevelUpdateStuck", []string{
		`runlevel_problem_timestamp_seconds{problem="waiting",kind="Deployment.apps",namespace="shop",name="web"} 0x120`,
	}, 90 * time.Minute, 0, ""},
	{"RunlevelDeletePending",
		[]string{
			`runlevel_problem_timestamp_seconds{problem="deleting",kind="Namespace",namespace="",name="old"} 60x500`,
		}, 6 * time.Hour, 370 * time.Minute,
		"Namespace /old was requested to be deleted 6h 9m 0s ago, and still exists."},
	{"RunlevelContested", []string{
		`runlevel_problem_timestamp_seconds{problem="contested",kind="ConfigMap",namespace="shop",name="web"} 60x30`,
	}, 14 * time.Minute, 16 * time.Minute, "Another writer reverts ConfigMap shop/web repeatedly."},
	{"ClusterOperatorDown", []string{`cluster_operator_up{name="till",version="1.0.0",reason="NoDisk"} 1x5 0x30`},
		15 * time.Minute, 17 * time.Minute, "ClusterOperator till is not available, because of NoDisk."},
	{"ClusterOperatorDegraded",
		[]string{`cluster_operator_conditions{name="till",condition="Degraded",reason="NoDisk"} 1x60`},
		29 * time.Minute, 31 * time.Minute, "ClusterOperator till is degraded, because of NoDisk."},
	{"ClusterOperatorDegraded",
		[]string{`cluster_operator_conditions{name="version",condition="Failing",reason="MultipleErrors"} 1x60`},
		29 * time.Minute, 31 * time.Minute, "ClusterOperator version is degraded, because of MultipleErrors."},
	{"ClusterOperatorFlapping",
		[]string{`cluster_operator_condition_transitions{name="till",condition="Available"} 0+1x60`}, 10 * time.Minute,
		30 * time.Minute, "ClusterOperator till repeatedly changes between available and unavailable."},
	{"ClusterOperatorFlapping",
		[]string{`cluster_operator_condition_transitions{name="till",condition="Available"} 0x10 2x50`},
		40 * time.Minute, 0, ""},

	{"MachineControllerDown", []string{"up 1x30"}, 9 * time.Minute, 11 * time.Minute,
		"No machine controller is active."},
	{"MachineControllerDown",
		[]string{`runlevel_machine_leader{pod="a"} 0x30`, `runlevel_machine_leader{pod="b"} 0x30`}, 9 * time.Minute,
		11 * time.Minute, ""},
	{"MachineControllerDown",
		[]string{`runlevel_machine_leader{pod="a"} 1x5 0x25`, `runlevel_machine_leader{pod="b"} 0x7 1x23`},
		29 * time.Minute, 0, ""},
	{"MachineAPIOperatorMetricsCollectionFailing", []string{`mapi_mao_collector_up{kind="mapi_machine_items"} 0x30`},
		4 * time.Minute, 6 * time.Minute, "mapi_machine_items can't be counted."},
	{"MachineAPIOperatorMetricsCollectionFailing", []string{`mapi_mao_collector_up{kind="mapi_machine_items"} 1x30`},
		29 * time.Minute, 0, ""},
	{"MachineNotYetDeleted", []string{created + `{namespace="shop",name="web-4",phase="Deleting"} 1700000000x600`},
		359 * time.Minute, 361 * time.Minute, "Machine shop/web-4 has been in phase Deleting for more than 6 hours."},
	// another replica
	{"MachineNotYetDeleted", []string{
		created + `{namespace="shop",name="web-4",phase="Deleting",pod="a"} 1700000000x100`,
		created + `{namespace="shop",name="web-4",phase="Deleting",pod="b"} _x110 1700000000x490`}, 359 * time.Minute,
		361 * time.Minute, ""},
	// one after the other
	{"MachineNotYetDeleted", []string{created + `{namespace="shop",name="web-4",phase="Deleting"} 1700000000x300`,
		created + `{namespace="shop",name="web-5",phase="Deleting"} _x300 1700000000x300`}, 590 * time.Minute, 0, ""},
	{"MachineNotYetDeleted", []string{created + web4}, 590 * time.Minute, 0, ""},
	{"MachineWithNoRunningPhase", []string{created + `{namespace="shop",name="web-4",phase="Failed"} 1700000000x90`},
		59 * time.Minute, 61 * time.Minute, "Machine shop/web-4 has not been running for more than an hour."},
	{"MachineWithNoRunningPhase",
		[]string{created + `{namespace="shop",name="web-4",phase="Provisioning"} 1700000000x30`,
			created + `{namespace="shop",name="web-4",phase="Provisioned"} _x30 1700000000x60`}, 59 * time.Minute,
		61 * time.Minute, ""},
	{"MachineWithNoRunningPhase",
		[]string{created + web4, created + `{namespace="shop",name="web-5",phase="Deleting"} 1700000000x600`},
		590 * time.Minute, 0, ""},
	{"MachineWithoutValidNode",
		[]string{nodes, created + web4,
			created + `{namespace="shop",name="web-5",node="node-5",phase="Running"} 1700000000x90`}, 59 * time.Minute,
		61 * time.Minute, "Machine shop/web-5 has no node."},
	{"MachineWithoutValidNode",
		[]string{nodes, created + web4,
			created + `{namespace="shop",name="web-5",node="",phase="Deleting"} 1700000000x600`},
		590 * time.Minute, 0, ""},
	// the nodes are unknown
	{"MachineWithoutValidNode",
		[]string{created + `{namespace="shop",name="web-5",node="",phase="Provisioned"} 1700000000x600`},
		590 * time.Minute, 0, ""},
	{"MachineHealthCheckUnterminatedShortCircuit",
		[]string{`mapi_machinehealthcheck_short_circuit{namespace="shop",name="web"} 1x60`}, 29 * time.Minute,
		31 * time.Minute, "MachineHealthCheck shop/web has replaced no machine for 30 minutes, since too many are " +
			"unhealthy."},
	{"MachineHealthCheckUnterminatedShortCircuit",
		[]string{`mapi_machinehealthcheck_short_circuit{namespace="shop",name="web"} 0x60`}, 59 * time.Minute, 0, ""},
	{"MachineHealthCheckRemediationStopped",
		[]string{
			`runlevel_machinehealthcheck_remediation_stopped{api="cluster.x-k8s.io",namespace="shop",name="web"} 1x60`,
		}, 29 * time.Minute, 31 * time.Minute,
		"MachineHealthCheck shop/web of Cluster API has remediated no machine for 30 minutes, since too many are " +
			"unhealthy."},
	// which has an alert of its own
	{"MachineHealthCheckRemediationStopped",
		[]string{`runlevel_machinehealthcheck_remediation_stopped{api="machine.openshift.io",namespace="shop",name="web"} 1x60`}, 59 * time.Minute, 0, ""},
	{"MachinesNotHealthy", []string{
		`runlevel_machinehealthcheck_not_healthy{api="cluster.x-k8s.io",namespace="shop",name="web"} 2x150`,
	}, 119 * time.Minute, 121 * time.Minute, "2 machines of MachineHealthCheck shop/web are not healthy."},
	{"MachinesNotHealthy", []string{
		`runlevel_machinehealthcheck_not_healthy{api="cluster.x-k8s.io",namespace="shop",name="web"} 2x60 0x5 2x90`,
	}, 150 * time.Minute, 0, ""},

	{"ControlPlaneMachineSetDegraded",
		[]string{set +
			`degraded{kind="ControlPlaneMachineSet",namespace="shop",name="cluster",state="Active",reason="UnmanagedNodes"} 1x60`}, 14 * time.Minute, 16 * time.Minute, "ControlPlaneMachineSet shop/cluster replaces no machine, because of UnmanagedNodes."},
	{"ControlPlaneMachineSetDegraded",
		[]string{set +
			`degraded{kind="ControlPlaneMachineSet",namespace="shop",name="cluster",state="Inactive",reason="UnmanagedNodes"} 1x60`}, 59 * time.Minute, 0, ""},
	{"ControlPlaneMachineSetStuck",
		[]string{active, set + "replicas" + cluster + ` 3x10 4x400`, set + "replicas_updated" + cluster + ` 1x400`},
		129 * time.Minute, 132 * time.Minute,
		"ControlPlaneMachineSet shop/cluster has replaced no machine for more than an hour, though some are outdated."},
	{"ControlPlaneMachineSetStuck",
		[]string{active, set + "replicas" + cluster + ` 3x50 4x50 3x50 4x50`,
			set + "replicas_updated" + cluster + ` 0x50 1x100 2x50`}, 190 * time.Minute, 0, ""},
	// an administrator deletes them
	{"ControlPlaneMachineSetStuck",
		[]string{strings.Replace(active, "RollingUpdate", "OnDelete", 1), set + "replicas" + cluster + ` 3x400`,
			set + "replicas_updated" + cluster + ` 1x400`}, 390 * time.Minute, 0, ""},
	{"ControlPlaneMachineSetUnavailableReplicas", []string{set + "replicas_unavailable" + cluster + ` 1x60`},
		29 * time.Minute, 31 * time.Minute,
		"ControlPlaneMachineSet shop/cluster lacks 1 ready machines."},
	{"ControlPlaneMachineSetUnavailableReplicas",
		[]string{set + `replicas_unavailable{kind="RunlevelControlPlane",namespace="shop",name="cluster"} 2x60`},
		29 * time.Minute, 31 * time.Minute,
		"RunlevelControlPlane shop/cluster lacks 2 ready machines."},
	{"ControlPlaneMachineSetUnavailableReplicas", []string{set + "replicas_unavailable" + cluster + ` 1x20 0x40`},
		59 * time.Minute, 0, ""},

	{"EtcdQuorumGuardDown", []string{`runlevel_etcd_guard_leader{pod="a"} 0x30`}, 9 * time.Minute, 11 * time.Minute,
		"No quorum guard of etcd is active."},
	{"EtcdQuorumGuardDown", []string{`runlevel_etcd_guard_leader{pod="a"} 1x5 0x25`,
		`runlevel_etcd_guard_leader{pod="b"} 0x7 1x23`}, 29 * time.Minute, 0, ""},
	{"EtcdQuorumGuardBlind", []string{guard + "etcd_reachable 1x5 0x60",
		guard + "last_look_timestamp_seconds 0+60x5 300x60"}, 14 * time.Minute, 17 * time.Minute,
		"The quorum guard can't read the state of etcd members."},
	// the guard has never reached the members
	{"EtcdQuorumGuardBlind", []string{guard + "etcd_reachable 0x60"}, 9 * time.Minute, 11 * time.Minute, ""},
	{"EtcdQuorumGuardBlind", []string{guard + "etcd_reachable 1x60", guard + "last_look_timestamp_seconds 0+60x60"},
		59 * time.Minute, 0, ""},
	{"EtcdMemberUnhealthy", []string{guard + "voters 3x60", guard + "voters_healthy 3x5 2x60"}, 15 * time.Minute,
		17 * time.Minute, "1 voting members of etcd do not respond."},
	{"EtcdMemberUnhealthy", []string{guard + "voters 3x60", guard + "voters_healthy 3x5 2x5 3x60"}, 59 * time.Minute, 0,
		""},
	{"EtcdQuorumAtRisk", []string{guard + "voters 3x60", guard + "voters_healthy 2x60"}, 9 * time.Minute,
		11 * time.Minute, "Etcd has only 2 voting members that respond: if one more fails, the cluster is down."},
	{"EtcdQuorumAtRisk", []string{guard + "voters 5x60", guard + "voters_healthy 4x60"}, 59 * time.Minute, 0, ""},
	{"EtcdQuorumAtRisk", []string{guard + "voters 1x60", guard + "voters_healthy 1x60"}, 59 * time.Minute, 0, ""},
	{"EtcdVotersMissing", []string{guard + "voters_wanted 3x90", guard + "voters 2x90"}, 59 * time.Minute,
		61 * time.Minute, "Etcd lacks 1 voting members."},
	{"EtcdVotersMissing", []string{guard + "voters_wanted 3x90", guard + "voters 4x90"}, 89 * time.Minute, 0, ""},
	{"EtcdHoldsMachine", []string{guard + `held_since_timestamp_seconds{namespace="shop",name="master-a"} 0x90`},
		64 * time.Minute, 67 * time.Minute,
		"The quorum guard has blocked the deletion of machine shop/master-a for 1h 7m 0s."},
	{"EtcdHoldsMachine", []string{guard + `held_since_timestamp_seconds{namespace="shop",name="master-a"} 0x40`, guard +
		`held_since_timestamp_seconds{namespace="shop",name="master-b"} _x40 2400x40`}, 80 * time.Minute, 0, ""},
}

func TestAlertsFireInTheirScenarios(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.alert, func(t *testing.T) {
			rule, series := find(t, s.alert), parse(t, s.series)
			s.expectSeriesOf(t, rule)
			if _, fires := rule.stateAt(t, series, s.quiet); fires && s.quiet > 0 {
				t.Errorf("the alert fires at %s, want at %s", s.quiet, s.fires)
			}
			if s.fires == 0 {
				return
			}
			summary, fires := rule.stateAt(t, series, s.fires)
			if !fires || s.summary != "" && summary != s.summary {
				t.Errorf("at %s, the alert fires: %v, with %q; want %q", s.fires, fires, summary, s.summary)
			}
		})
	}
}

// expectSeriesOf checks that the rule reads the series of a scenario: an alert does not fire for one with another name.
func (s scenario) expectSeriesOf(t *testing.T, rule alert) {
	t.Helper()
	for _, text := range s.series {
		name, _, _ := strings.Cut(strings.Fields(text)[0], "{")
		if name != "up" && !regexp.MustCompile(`\b`+name+`\b`).MatchString(rule.Expr) {
			t.Errorf("the rule does not read %s", name)
		}
	}
}

// TestEachAlertHasAScenarioAndAPage checks that an alert is explained on the page that it links to.
func TestEachAlertHasAScenarioAndAPage(t *testing.T) {
	for _, rule := range rules(t) {
		if !slices.ContainsFunc(scenarios, func(s scenario) bool { return s.alert == rule.Alert && s.fires > 0 }) {
			t.Errorf("%s never fires in a test", rule.Alert)
		}
		anchor := rule.page + "#" + strings.ToLower(rule.Alert)
		if !strings.Contains(read(t, rule.page), "\n### "+rule.Alert+"\n") ||
			!strings.HasSuffix(rule.Annotations["runbook_url"], anchor) {
			t.Errorf("%s is not explained in %s, or does not link there: %s", rule.Alert, rule.page,
				rule.Annotations["runbook_url"])
		}
	}
}

// TestMetricsOfQueriesAreDocumented checks that the metrics of the dashboard and of the alerts are in the table of
// their page.
func TestMetricsOfQueriesAreDocumented(t *testing.T) {
	for _, query := range queries(t) {
		expectMetrics(t, query, "docs/monitoring.md")
	}
	for _, rule := range rules(t) {
		expectMetrics(t, rule.Expr, rule.page)
	}
}

// expectMetrics checks that a page has the metrics of a query, except for those of other programs.
func expectMetrics(t *testing.T, query, page string) {
	t.Helper()
	expr, err := parser.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", query, err)
		return
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		isOfOthers := ok && (strings.HasPrefix(selector.Name, "process_") || strings.HasPrefix(selector.Name, "kube_"))
		if ok && !isOfOthers && !strings.Contains(read(t, page), "`"+selector.Name+"`") {
			t.Errorf("%s: %s has no metric %s", query, page, selector.Name)
		}
		return nil
	})
}

// queries returns the queries of the dashboard.
func queries(t *testing.T) []string {
	t.Helper()
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	decode(t, "../../install/monitoring/dashboard.json", &dashboard)
	var all []string
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			all = append(all, target.Expr)
		}
	}
	if len(all) == 0 {
		t.Fatal("the dashboard has no queries")
	}
	return all
}

// An alert is a rule of a file.
type alert struct {
	rulefmt.Rule
	page string // page that explains the alert
}

// rules returns the alerts, as Prometheus reads them.
func rules(t *testing.T) []alert {
	t.Helper()
	var all []alert
	for file, page := range files {
		var object struct{ Spec yaml.Node }
		decode(t, file, &object)
		text, err := yaml.Marshal(&object.Spec)
		if err != nil {
			t.Fatal(err)
		}
		groups, errs := rulefmt.Parse(text, false, model.UTF8Validation)
		if len(errs) > 0 {
			t.Fatalf("%s: %v", file, errs)
		}
		for _, group := range groups.Groups {
			for _, rule := range group.Rules {
				all = append(all, alert{rule, page})
			}
		}
	}
	return all
}

func decode(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// read returns the text of a page.
func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func find(t *testing.T, name string) alert {
	t.Helper()
	all := rules(t)
	i := slices.IndexFunc(all, func(a alert) bool { return a.Alert == name })
	if i < 0 {
		t.Fatalf("no alert has the name %s", name)
	}
	return all[i]
}

// stateAt reports whether an alert fires at a time: it has been active at each minute of its "for". It returns the
// summary.
func (a alert) stateAt(t *testing.T, series seriesSet, now time.Duration) (summary string, fires bool) {
	t.Helper()
	begun := now - time.Duration(a.For)
	if begun < 0 {
		return "", false
	}
	active := series.query(t, a.Expr, begun)
	for minute := begun; minute <= now; minute += time.Minute {
		current := series.query(t, a.Expr, minute)
		active = slices.DeleteFunc(current, func(s promql.Sample) bool {
			return !slices.ContainsFunc(active, func(before promql.Sample) bool {
				return labels.Equal(before.Metric, s.Metric)
			})
		})
		if len(active) == 0 {
			return "", false
		}
	}
	sample := active[0]
	text := "{{$labels := .Labels}}{{$value := .Value}}" + a.Annotations["summary"]
	expander := template.NewTemplateExpander(t.Context(), text, a.Alert,
		template.AlertTemplateData(sample.Metric.Map(), nil, "", sample), 0, nil, nil, nil)
	summary, err := expander.Expand()
	if err != nil {
		t.Fatal(err)
	}
	return summary, true
}

// A seriesSet is a storage of series.
type seriesSet []storage.Series

// parse returns series that are written as for promtool.
func parse(t *testing.T, texts []string) seriesSet {
	t.Helper()
	var all seriesSet
	for _, text := range texts {
		seriesLabels, values, err := parser.ParseSeriesDesc(text)
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", text, err))
		}
		var samples []chunks.Sample
		for minute, value := range values {
			samples = append(samples, sample{int64(minute) * time.Minute.Milliseconds(), value.Value})
		}
		all = append(all, storage.NewListSeries(seriesLabels, samples))
	}
	return all
}

// query evaluates an expression at a time.
func (s seriesSet) query(t *testing.T, expr string, now time.Duration) promql.Vector {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	defer engine.Close()
	query, err := engine.NewInstantQuery(t.Context(), s, nil, expr, time.UnixMilli(now.Milliseconds()))
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	vector, err := query.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(vector)
}

// Querier returns a querier of all series, whatever the time.
func (s seriesSet) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints,
		matchers ...*labels.Matcher) storage.SeriesSet {
		found := &resultSeries{}
		for _, one := range s {
			isMatch := !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool {
				return !m.Matches(one.Labels().Get(m.Name))
			})
			if isMatch {
				found.remaining = append(found.remaining, one)
			}
		}
		return found
	}}, nil
}

// A resultSeries iterates over the series of a query's result.
type resultSeries struct{ remaining, current []storage.Series }

func (r *resultSeries) Next() bool {
	if len(r.remaining) == 0 {
		return false
	}
	r.current = r.remaining[:1]
	r.remaining = r.remaining[1:]
	return true
}
func (r *resultSeries) At() storage.Series                { return r.current[0] }
func (r *resultSeries) Err() error                        { return nil }
func (r *resultSeries) Warnings() annotations.Annotations { return nil }

// A sample is a number with its time in milliseconds.
type sample struct {
	time  int64
	value float64
}

func (s sample) T() int64                      { return s.time }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
