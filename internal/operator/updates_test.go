package operator_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A graphServer is an update service with a graph that the test sets.
type graphServer struct {
	*httptest.Server
	mu    sync.Mutex
	graph string // empty for a broken service
}

// newGraphServer returns a broken update service.
func newGraphServer(t *testing.T) *graphServer {
	g := &graphServer{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if requested := r.URL.Query(); g.graph == "" || requested.Get("version") == "" || requested.Get("id") == "" ||
			requested.Get("arch") == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, g.graph)
	}))
	t.Cleanup(g.Close)
	return g
}

// serve serves a graph of three versions: an update to the second, and an update with a risk to the third. If there are
// no images, the service fails.
func (g *graphServer) serve(images ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.graph = ""
	if len(images) == 3 {
		g.graph = fmt.Sprintf(`{
			"nodes": [
				{"version": "1.0.0", "payload": %q, "metadata": {"io.openshift.upgrades.graph.release.channels": "stable,fast"}},
				{"version": "1.0.1", "payload": %q}, {"version": "1.1.0", "payload": %q}, {"version": "1.2.0", "payload": "r.example/shop:latest"}],
			"edges": [[0, 1], [0, 3]],
			"conditionalEdges": [{"edges": [{"from": "1.0.0", "to": "1.1.0"}, {"from": "1.0.1", "to": "1.1.0"}], "risks": [
				{"name": "SlowDisks", "url": "https://example.com/disks", "message": "Slow disks get slower.", "matchingRules": [{"type": "Always"}]}]}]
		}`, images[0], images[1], images[2])
	}
}

// setRule replaces the rule of the risk.
func (g *graphServer) setRule(rule string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.graph = strings.Replace(g.graph, `{"type": "Always"}`, rule, 1)
}

// serveLargest serves a graph whose risks have the largest size that an answer allows, with texts that their
// conditions repeat.
func (g *graphServer) serveLargest(version, image string) {
	nodes, groups := []string{fmt.Sprintf(`{"version": %q}`, version)}, []string{}
	for i := range 600 {
		nodes = append(nodes, fmt.Sprintf(`{"version": "2.0.%d", "payload": %q}`, i, image))
		groups = append(groups,
			fmt.Sprintf(`{"edges": [{"from": %q, "to": "2.0.%d"}], "risks": [{"name": "Risk%[2]d%s",
			"url": "https://example.com", "message": %q, "matchingRules": [{"type": "PromQL", "promql": {"promql": "up"}}]}]}`,
				version, i, strings.Repeat("r", 240), strings.Repeat("m", 10_600)))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.graph = `{"nodes": [` + strings.Join(nodes, ",") + `], "conditionalEdges": [` + strings.Join(groups, ",") + `]}`
}

// specify changes the spec of the ClusterVersion.
func (s *stage) specify(change func(*configv1.ClusterVersionSpec)) {
	s.t.Helper()
	v := s.version()
	patch := client.MergeFrom(v.DeepCopy())
	change(&v.Spec)
	s.must(s.client.Patch(s.t.Context(), v, patch))
}

// offers returns a test of the updates that are listed.
func offers(want string) func(*configv1.ClusterVersion) bool {
	return func(v *configv1.ClusterVersion) bool {
		var all []string
		for _, release := range v.Status.AvailableUpdates {
			all = append(all, release.Version)
		}
		for _, update := range v.Status.ConditionalUpdates {
			all = append(all, fmt.Sprintf("%s %s=%s %s", update.Release.Version, update.Conditions[0].Type,
				update.Conditions[0].Status, update.Conditions[0].Reason))
		}
		return strings.Join(all, ", ") == want
	}
}

// TestAcceptedRisks accepts the risks of updates, as "oc adm upgrade accept" does: by name, without an update, and one
// after the other.
func TestAcceptedRisks(t *testing.T) {
	t.Parallel()
	service := newGraphServer(t)
	s := begin(t, "1.0.0", shop+till)
	s.report("till", "1.0.0")
	s.until("installed", isAt("1.0.0"))
	service.serve(s.options.Payload, s.push("1.0.1", shop+till), s.push("1.1.0", shop+till))
	s.specify(func(spec *configv1.ClusterVersionSpec) {
		spec.Upstream, spec.Channel = configv1.URL(service.URL), "stable"
	})
	s.until("the risk of the update service applies", offers("1.0.1, 1.1.0 Recommended=False SlowDisks"))
	s.report("till", "1.0.0", func(status *configv1.ClusterOperatorStatus) {
		status.Conditions = append(status.Conditions, condition(configv1.OperatorUpgradeable, configv1.ConditionFalse))
	})
	listed := s.until("the risk of a ClusterOperator applies", offers("1.0.1, 1.1.0 Recommended=False MultipleReasons"))
	var risks []string
	for _, risk := range listed.Status.ConditionalUpdateRisks {
		risks = append(risks, fmt.Sprintf("%s %s=%s", risk.Name, risk.Conditions[0].Type, risk.Conditions[0].Status))
	}
	want := []string{"ClusterOperatorUpgradeable-till Applies=True", "SlowDisks Applies=True"}
	if diff := cmp.Diff(want, risks); diff != "" {
		t.Errorf("conditionalUpdateRisks (-want +got)\n%s", diff)
	}
	want = []string{"ClusterOperatorUpgradeable-till", "SlowDisks"}
	if diff := cmp.Diff(want, listed.Status.ConditionalUpdates[0].RiskNames); diff != "" {
		t.Errorf("riskNames (-want +got)\n%s", diff)
	}

	accept := func(names ...string) {
		s.specify(func(spec *configv1.ClusterVersionSpec) {
			spec.DesiredUpdate = &configv1.Update{}
			for _, name := range names {
				spec.DesiredUpdate.AcceptRisks = append(spec.DesiredUpdate.AcceptRisks, configv1.AcceptRisk{Name: name})
			}
		})
	}
	accept("SlowDisks", "FastDisks")
	s.until("one risk is accepted", offers("1.0.1, 1.1.0 Recommended=False ExposedToRisks"))
	s.until("a name that no update has is reported", func(v *configv1.ClusterVersion) bool {
		return strings.Contains(find(v, configv1.RetrievedUpdates).Message,
			"Accepted risks that no update has: FastDisks")
	})
	accept("SlowDisks", "ClusterOperatorUpgradeable-till")
	v := s.until("all risks are accepted", offers("1.1.0, 1.0.1, 1.1.0 Recommended=True AllExposedRisksAccepted"))
	if got := find(v, configv1.OperatorUpgradeable); got.Status != configv1.ConditionFalse {
		t.Errorf("Upgradeable is %s after the risks are accepted, want False", got.Status)
	}
	s.specify(func(spec *configv1.ClusterVersionSpec) { spec.DesiredUpdate.Version = "1.1.0" })
	s.until("the gate needs force", has("ReleaseAccepted", configv1.ConditionFalse, "PreconditionChecks"))
	s.report("till", "1.0.0")
	s.until("the update begins", func(v *configv1.ClusterVersion) bool {
		return v.Status.History[0].Version == "1.1.0"
	})
	s.report("till", "1.1.0")
	done := s.until("updated", isAt("1.1.0"))
	if got, want := done.Status.History[0].AcceptedRisks, "AcceptedRisk-SlowDisks (set by operator.test)"; got != want {
		t.Errorf("the history has the accepted risks %q, want %q", got, want)
	}
}

// TestRisksAreEvaluated evaluates the query of a risk, and takes an alert as a risk.
func TestRisksAreEvaluated(t *testing.T) {
	t.Parallel()
	var firing atomic.Bool
	monitoring := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/v1/alerts" && firing.Load():
			fmt.Fprint(w, `{"status": "success", "data": {"alerts": [{"state": "firing", "activeAt": "2026-01-01T00:00:00Z",
				"labels": {"alertname": "KubeNodeNotReady", "severity": "warning"}, "annotations": {}}]}}`)
		case r.URL.Path == "/api/v1/alerts":
			fmt.Fprint(w, `{"status": "success", "data": {"alerts": []}}`)
		default:
			fmt.Fprint(w, `{"status": "success", "data": {"resultType": "vector", "result": [{"value": [1, "0"]}]}}`)
		}
	}))
	t.Cleanup(monitoring.Close)
	service := newGraphServer(t)
	s := newStage(t)
	s.options.Prometheus.URL = monitoring.URL
	s.beginWith("1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	service.serve(s.options.Payload, s.push("1.0.1", shop), s.push("1.1.0", shop))
	service.setRule(`{"type": "PromQL", "promql": {"promql": "disk_is_slow"}}`)
	s.specify(func(spec *configv1.ClusterVersionSpec) {
		spec.Upstream, spec.Channel = configv1.URL(service.URL), "stable"
	})
	s.until("the risk does not apply", offers("1.1.0, 1.0.1, 1.1.0 Recommended=True NotExposedToRisks"))
	firing.Store(true)
	s.restart()
	s.until("the alert is a risk", offers(
		"1.1.0 Recommended=False KubeNodeNotReady, 1.0.1 Recommended=False KubeNodeNotReady"))
}

// TestUpdatesOfAnUpdateService takes updates that an update service offers, also when it does not answer any more.
func TestUpdatesOfAnUpdateService(t *testing.T) {
	t.Parallel()
	const retrieved = configv1.RetrievedUpdates
	service := newGraphServer(t)
	s := begin(t, "1.0.0", shop)
	s.until("installed", isAt("1.0.0"))
	s.until("no service is configured", has(retrieved, configv1.ConditionFalse, "NoUpstream"))
	s.specify(func(spec *configv1.ClusterVersionSpec) { spec.Upstream = configv1.URL(service.URL + "/graph") })
	s.until("no channel is configured", has(retrieved, configv1.ConditionFalse, "NoChannel"))
	s.specify(func(spec *configv1.ClusterVersionSpec) { spec.Channel = "stable" })
	s.until("the service is broken", has(retrieved, configv1.ConditionFalse, "ResponseFailed"))
	service.serve(s.options.Payload, s.push("1.0.1", shop), s.push("1.1.0", shop))
	s.specify(func(spec *configv1.ClusterVersionSpec) { spec.Channel = "fast" })
	const both = "1.0.1, 1.1.0 Recommended=False SlowDisks"
	listed := s.until("updates are listed", offers(both))
	if got := find(listed, retrieved); got.Status != configv1.ConditionTrue ||
		!strings.Contains(got.Message, `1.2.0: its image "r.example/shop:latest" is not named by digest`) {
		t.Errorf("%+v", got)
	}
	if got := listed.Status.Desired.Channels; strings.Join(got, ",") != "fast,stable" {
		t.Errorf("the channels of the release are %q", got)
	}

	service.serve()
	s.restart()
	stays := s.until("the service is broken after a restart", has(retrieved, configv1.ConditionFalse, "ResponseFailed"))
	if message := find(stays, retrieved).Message; !offers(both)(stays) ||
		!strings.Contains(message, "the updates that are listed were retrieved at 20") {
		t.Errorf("the status has lost the updates: %s\n%s", message, s.text())
	}
	since := stays.Status.ConditionalUpdates[0].Conditions[0].LastTransitionTime
	if before := listed.Status.ConditionalUpdates[0].Conditions[0].LastTransitionTime; !since.Equal(&before) {
		t.Errorf("the update is not recommended since %s, and then since %s", before, since)
	}
	s.ask(&configv1.Update{Version: "1.0.1"})
	s.until("updated to a version of the list", isAt("1.0.1"))
	s.until("the updates of the version before are removed", offers(""))

	service.serve(s.options.Payload, s.push("1.0.1", shop), s.push("1.1.0", shop))
	s.specify(func(spec *configv1.ClusterVersionSpec) { spec.Channel = "stable" })
	s.until("updates of the new version are listed", offers("1.1.0 Recommended=False SlowDisks"))
	s.ask(&configv1.Update{Version: "1.1.0"})
	done := s.until("updated against the advice", isAt("1.1.0"))
	if got := done.Status.History[0].AcceptedRisks; got != "RecommendedUpdate-SlowDisks" {
		t.Errorf("the history has the accepted risks %q", got)
	}

	service.serveLargest("1.1.0", s.options.Payload)
	s.specify(func(spec *configv1.ClusterVersionSpec) { spec.Channel = "large" })
	s.until("a ClusterVersion takes the largest answer", func(v *configv1.ClusterVersion) bool {
		return len(v.Status.ConditionalUpdates) > 10 &&
			strings.Contains(find(v, retrieved).Message, "a ClusterVersion has no room for it\n* and ")
	})
}
