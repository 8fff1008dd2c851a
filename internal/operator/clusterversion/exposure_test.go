package clusterversion_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// risk returns a risk that always applies, or one whose query is not evaluated.
func risk(name string, always bool) configv1.ConditionalUpdateRisk {
	rule := configv1.ClusterCondition{Type: "PromQL", PromQL: &configv1.PromQLClusterCondition{PromQL: "up"}}
	if always {
		rule = configv1.ClusterCondition{Type: "Always"}
	}
	return configv1.ConditionalUpdateRisk{
		Name: name, Message: name + ".", URL: "https://example.test/" + name,
		MatchingRules: []configv1.ClusterCondition{rule},
	}
}

// offered returns an observation of 1.0.0, for which an update service offers 1.0.1, and 1.1.0 with risks.
func offered(risks ...configv1.ConditionalUpdateRisk) clusterversion.Observation {
	observed := completed(0, "1.0.0")
	offer := &clusterversion.Offer{Updates: []configv1.Release{release("1.0.1")}}
	if len(risks) == 0 {
		offer.Updates = append(offer.Updates, release("1.1.0"))
	} else {
		offer.Conditional = []configv1.ConditionalUpdate{{Release: release("1.1.0"), Risks: risks}}
	}
	observed.Retrieved = &clusterversion.Retrieved{Version: "1.0.0", Offer: offer, Time: noon}
	return observed
}

// summary returns the available updates, and the conditional ones with their conditions.
func summary(available []configv1.Release, conditional []configv1.ConditionalUpdate) string {
	var all []string
	for _, release := range available {
		all = append(all, release.Version)
	}
	for _, update := range conditional {
		c := update.Conditions[0]
		all = append(all, fmt.Sprintf("%s %s=%s %s", update.Release.Version, c.Type, c.Status, c.Reason))
	}
	return strings.Join(all, ", ")
}

func TestRecommendedUpdates(t *testing.T) {
	disks, network, metered := risk("SlowDisks", true), risk("SlowNetwork", true), risk("Metered", false)
	for name, c := range map[string]struct {
		risks    []configv1.ConditionalUpdateRisk
		accepted []string
		want     string
	}{
		"no risks":    {want: "1.1.0, 1.0.1"},
		"one applies": {risks: list(disks), want: "1.0.1, 1.1.0 Recommended=False SlowDisks"},
		"two apply":   {risks: list(disks, network), want: "1.0.1, 1.1.0 Recommended=False MultipleReasons"},
		"its name is no reason": {
			risks: list(risk("Slow disks", true)), want: "1.0.1, 1.1.0 Recommended=False ExposedToRisks",
		},
		"it is accepted": {
			risks: list(disks), accepted: []string{"SlowDisks"},
			want: "1.1.0, 1.0.1, 1.1.0 Recommended=True AllExposedRisksAccepted",
		},
		"one of two is accepted": {
			risks: list(disks, network), accepted: []string{"SlowDisks"},
			want: "1.0.1, 1.1.0 Recommended=False SlowNetwork",
		},
		"another one is accepted": {
			risks: list(disks), accepted: []string{"FastDisks"}, want: "1.0.1, 1.1.0 Recommended=False SlowDisks",
		},
		"it is not evaluated": {risks: list(metered), want: "1.0.1, 1.1.0 Recommended=Unknown EvaluationFailed"},
		"it is not evaluated, and accepted": {
			risks: list(metered), accepted: []string{"Metered"},
			want: "1.0.1, 1.1.0 Recommended=Unknown EvaluationFailed",
		},
		"one applies, one is not evaluated": {
			risks: list(disks, metered), want: "1.0.1, 1.1.0 Recommended=False MultipleReasons",
		},
		"one is accepted, one is not evaluated": {
			risks: list(disks, metered), accepted: []string{"SlowDisks"},
			want: "1.0.1, 1.1.0 Recommended=Unknown EvaluationFailed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			observed := offered(c.risks...)
			observed.AcceptedRisks = c.accepted
			exposure := clusterversion.Expose(observed)
			if got := summary(exposure.Available, exposure.Conditional); got != c.want {
				t.Errorf("got updates %s, want %s", got, c.want)
			}
		})
	}
}

func list(risks ...configv1.ConditionalUpdateRisk) []configv1.ConditionalUpdateRisk { return risks }

// TestRisksOfTheCluster checks that what blocks a minor update is a risk of the minor updates, and of no patch.
func TestRisksOfTheCluster(t *testing.T) {
	observed := offered()
	observed.Overrides = []configv1.ComponentOverride{{Kind: "Deployment", Name: "web", Unmanaged: true}}
	observed.Gates = []precondition.AdminGate{{
		Name:       "ack-1.0-prices",
		Message:    "Prices move, see https://example.test/prices.",
		Resolution: "acknowledging it",
	}}
	next := clusterversion.Next(configv1.ClusterVersionStatus{}, observed)
	want := "1.0.1, 1.1.0 Recommended=False MultipleReasons"
	if got := summary(next.AvailableUpdates, next.ConditionalUpdates); got != want {
		t.Errorf("got updates %s, want %s", got, want)
	}
	names := []string{"AdminAck-ack-1.0-prices", "ClusterVersionOverrides"}
	if diff := cmp.Diff(names, next.ConditionalUpdates[0].RiskNames); diff != "" {
		t.Errorf("riskNames (-want +got)\n%s", diff)
	}
	if got := next.ConditionalUpdateRisks[0].URL; !strings.HasPrefix(got, "https://example.test/prices") {
		t.Errorf("the URL of the gate's risk is %s, want the one in its message", got)
	}
	observed.AcceptedRisks = names
	next = clusterversion.Next(next, observed)
	want = "1.1.0, 1.0.1, 1.1.0 Recommended=True AllExposedRisksAccepted"
	if got := summary(next.AvailableUpdates, next.ConditionalUpdates); got != want {
		t.Errorf("got updates %s after all risks are accepted, want %s", got, want)
	}
	if c := condition(t, next, configv1.OperatorUpgradeable); c.Status != configv1.ConditionFalse {
		t.Errorf("Upgradeable is %s after all risks are accepted, want False", c.Status)
	}
}

// TestTransitionsOfRisks checks that a condition keeps its time while its status is the same.
func TestTransitionsOfRisks(t *testing.T) {
	observed := offered(risk("SlowDisks", true))
	first := clusterversion.Next(configv1.ClusterVersionStatus{}, observed)
	observed.Now = noon.Add(1e9 * 60)
	second := clusterversion.Next(first, observed)
	if diff := cmp.Diff(first.ConditionalUpdates, second.ConditionalUpdates); diff != "" {
		t.Errorf("a minute later without a change (-before +after)\n%s", diff)
	}
	observed.AcceptedRisks = []string{"SlowDisks"}
	third := clusterversion.Next(second, observed)
	got := third.ConditionalUpdates[0].Conditions[0].LastTransitionTime
	if !got.Equal(&metav1.Time{Time: observed.Now}) {
		t.Errorf("Recommended has changed at %s, want %s", got, observed.Now)
	}
	if diff := cmp.Diff(first.ConditionalUpdateRisks, third.ConditionalUpdateRisks); diff != "" {
		t.Errorf("the risk still applies (-before +after)\n%s", diff)
	}
}

// TestManyRisks checks the limits of a ClusterVersion: the newest updates are kept, and the others reported.
func TestManyRisks(t *testing.T) {
	observed := offered()
	observed.Retrieved.Offer.Updates = nil
	for i := range 500 {
		var risks []configv1.ConditionalUpdateRisk
		for j := range 3 {
			risks = append(risks, risk(fmt.Sprintf("Risk%d-%d", i, j), true))
		}
		update := configv1.ConditionalUpdate{Release: release(fmt.Sprintf("1.%d.0", i+1)), Risks: risks}
		observed.Retrieved.Offer.Conditional = append(observed.Retrieved.Offer.Conditional, update)
	}
	for i := range 500 {
		observed.AcceptedRisks = append(observed.AcceptedRisks, fmt.Sprintf("Unknown%d", i))
	}
	next := clusterversion.Next(configv1.ClusterVersionStatus{}, observed)
	if got := len(next.ConditionalUpdateRisks); got != 498 {
		t.Errorf("%d risks are listed, want 498: those of 166 updates", got)
	}
	if got := next.ConditionalUpdates[0].Release.Version; got != "1.500.0" {
		t.Errorf("the first update is %s, want the newest one", got)
	}
	message := condition(t, next, configv1.RetrievedUpdates).Message
	for _, want := range []string{
		"Accepted risks that no update has: Unknown0", "* 1.334.0: a ClusterVersion has no room for it",
		"* and 324 more",
	} {
		if !strings.Contains(message, want) {
			t.Errorf("the message of RetrievedUpdates is %q, want %q in it", message, want)
		}
	}
	if text, err := json.Marshal(next); err != nil || len(text) > 1<<20 {
		t.Errorf("the status has %d bytes, error %v; want at most 1 MiB", len(text), err)
	}
}

// TestRiskBeyondTheLimit checks that a risk for which an update has no room counts in its condition.
func TestRiskBeyondTheLimit(t *testing.T) {
	var risks []configv1.ConditionalUpdateRisk
	observed := offered()
	for i := range 201 {
		name := fmt.Sprintf("Risk%03d", i)
		risks = append(risks, risk(name, true))
		if i < 200 {
			observed.AcceptedRisks = append(observed.AcceptedRisks, name)
		}
	}
	observed.Retrieved.Offer = &clusterversion.Offer{
		Conditional: []configv1.ConditionalUpdate{{Release: release("1.1.0"), Risks: risks}},
	}
	exposure := clusterversion.Expose(observed)
	want := "1.1.0 Recommended=False Risk200"
	if got := summary(exposure.Available, exposure.Conditional); got != want {
		t.Errorf("got updates %s, want %s", got, want)
	}
	if got := len(exposure.Conditional[0].Risks); got != 200 {
		t.Errorf("the update has %d risks, want 200", got)
	}
}

// TestWarningsOfAcceptedRisks checks which warnings an update has, and so which risks its history names.
func TestWarningsOfAcceptedRisks(t *testing.T) {
	for name, c := range map[string]struct {
		version  string
		accepted []string
		want     string
	}{
		"an update without risks":       {version: "1.0.1"},
		"an update that is not offered": {version: "1.2.0", want: "RecommendedUpdate-UnknownUpdate"},
		"a risk":                        {version: "1.1.0", want: "RecommendedUpdate-SlowDisks"},
		"an accepted risk": {
			version: "1.1.0", accepted: []string{"SlowDisks", "Other"}, want: "AcceptedRisk-SlowDisks",
		},
	} {
		t.Run(name, func(t *testing.T) {
			observed := offered(risk("SlowDisks", true))
			observed.AcceptedRisks = c.accepted
			got := precondition.CheckNames(clusterversion.UpdateWarnings(observed, c.version))
			if strings.Join(got, ", ") != c.want {
				t.Errorf("got warnings %q, want %q", got, c.want)
			}
		})
	}
}

// TestEvaluatedQueries checks risks with queries: the first rule that can be evaluated decides.
func TestEvaluatedQueries(t *testing.T) {
	metered := risk("Metered", false)
	always := risk("Metered", false)
	always.MatchingRules = append(always.MatchingRules, configv1.ClusterCondition{Type: "Always"})
	for name, c := range map[string]struct {
		risk   configv1.ConditionalUpdateRisk
		result *clusterversion.QueryResult
		want   string
	}{
		"a match": {metered, &clusterversion.QueryResult{Matches: true}, "1.0.1, 1.1.0 Recommended=False Metered"},
		"no match": {
			metered, &clusterversion.QueryResult{}, "1.1.0, 1.0.1, 1.1.0 Recommended=True NotExposedToRisks",
		},
		"an error": {
			metered, &clusterversion.QueryResult{Err: errors.New("no response")},
			"1.0.1, 1.1.0 Recommended=Unknown EvaluationFailed",
		},
		"no result yet": {metered, nil, "1.0.1, 1.1.0 Recommended=Unknown EvaluationFailed"},
		"an error before another rule": {
			always, &clusterversion.QueryResult{Err: errors.New("no response")},
			"1.0.1, 1.1.0 Recommended=False Metered",
		},
		"no match before another rule": {
			always, &clusterversion.QueryResult{}, "1.1.0, 1.0.1, 1.1.0 Recommended=True NotExposedToRisks",
		},
	} {
		t.Run(name, func(t *testing.T) {
			observed := offered(c.risk)
			observed.Monitoring = &clusterversion.Monitoring{Queries: map[string]clusterversion.QueryResult{}}
			if c.result != nil {
				observed.Monitoring.Queries["up"] = *c.result
			}
			exposure := clusterversion.Expose(observed)
			if got := summary(exposure.Available, exposure.Conditional); got != c.want {
				t.Errorf("got updates %s, want %s", got, c.want)
			}
		})
	}
}

// TestAlertsAreRisks checks that firing alerts are risks of all updates, also of patches.
func TestAlertsAreRisks(t *testing.T) {
	alert := func(name, severity, node string, after time.Duration) clusterversion.Alert {
		return clusterversion.Alert{
			Labels: map[string]string{"alertname": name, "severity": severity},
			Annotations: map[string]string{
				"summary": node + " is not well", "runbook_url": "https://example.test/" + name,
			},
			Since: noon.Add(after),
		}
	}
	observed := offered()
	observed.Monitoring = &clusterversion.Monitoring{HasAlerts: true, Alerts: []clusterversion.Alert{
		alert("KubeNodeNotReady", "warning", "node a", -time.Hour),
		alert("KubeNodeNotReady", "warning", "node b", -time.Minute),
		alert("Watchdog", "none", "nothing", -time.Hour),
	}}
	next := clusterversion.Next(configv1.ClusterVersionStatus{}, observed)
	want := "1.1.0 Recommended=False KubeNodeNotReady, 1.0.1 Recommended=False KubeNodeNotReady"
	if got := summary(next.AvailableUpdates, next.ConditionalUpdates); got != want {
		t.Fatalf("got updates %s, want %s", got, want)
	}
	applies := next.ConditionalUpdateRisks[0].Conditions[0]
	const message = "warning alert KubeNodeNotReady firing, which may slow workload redistribution during rolling node " +
		"updates. node a is not well. The alert has no description. https://example.test/KubeNodeNotReady; " +
		"warning alert KubeNodeNotReady firing"
	if applies.Reason != "Alert:firing" || !strings.HasPrefix(applies.Message, message) {
		t.Errorf("got reason %s and message %q, want reason Alert:firing and message %q…", applies.Reason,
			applies.Message, message)
	}
	if since := noon.Add(-time.Hour); !applies.LastTransitionTime.Equal(&metav1.Time{Time: since}) {
		t.Errorf("the risk applies since %s, want %s", applies.LastTransitionTime, since)
	}
	observed.AcceptedRisks = []string{"KubeNodeNotReady"}
	next = clusterversion.Next(next, observed)
	want = "1.1.0, 1.0.1, 1.1.0 Recommended=True AllExposedRisksAccepted, 1.0.1 Recommended=True AllExposedRisksAccepted"
	if got := summary(next.AvailableUpdates, next.ConditionalUpdates); got != want {
		t.Errorf("got updates %s after the alert is accepted, want %s", got, want)
	}
	warnings := precondition.CheckNames(clusterversion.UpdateWarnings(observed, "1.0.1"))
	if got, want := strings.Join(warnings, ", "), "AcceptedRisk-KubeNodeNotReady"; got != want {
		t.Errorf("got warnings %q about a patch, want %q", got, want)
	}

	restarted := observed
	restarted.Monitoring = &clusterversion.Monitoring{
		Earlier: clusterversion.EarlierAlerts(next), AlertErr: errors.New("connection refused"),
	}
	after := clusterversion.Next(next, restarted)
	if diff := cmp.Diff(next.ConditionalUpdateRisks, after.ConditionalUpdateRisks); diff != "" {
		t.Errorf("risks after a restart while alerts can't be read (-before +after)\n%s", diff)
	}
	note := condition(t, after, configv1.RetrievedUpdates).Message
	if want := "Alerts can't be read: connection refused"; note != want {
		t.Errorf("the message of RetrievedUpdates is %q, want %q", note, want)
	}
}

// TestOneDefinitionOfARisk checks that a risk of which updates have different definitions is evaluated once, by the one
// of the newest update: otherwise its condition would change with each status.
func TestOneDefinitionOfARisk(t *testing.T) {
	observed := offered(risk("SlowDisks", false))
	older := configv1.ConditionalUpdate{
		Release: release("1.0.2"), Risks: []configv1.ConditionalUpdateRisk{risk("SlowDisks", true)},
	}
	observed.Retrieved.Offer.Conditional = append(observed.Retrieved.Offer.Conditional, older)
	first := clusterversion.Next(configv1.ClusterVersionStatus{}, observed)
	want := "1.0.1, 1.1.0 Recommended=Unknown EvaluationFailed, 1.0.2 Recommended=Unknown EvaluationFailed"
	if got := summary(first.AvailableUpdates, first.ConditionalUpdates); got != want {
		t.Errorf("got updates %s, want %s", got, want)
	}
	observed.Now = noon.Add(time.Minute)
	if diff := cmp.Diff(first, clusterversion.Next(first, observed)); diff != "" {
		t.Errorf("a minute later without a change (-before +after)\n%s", diff)
	}
}

// TestURLsOfRisks checks that a text of the cluster can't make a risk that the definition of ClusterVersion refuses.
func TestURLsOfRisks(t *testing.T) {
	const fallback = "https://github.com/runlevel/runlevel/blob/main/docs/status.md#what-blocks-an-update"
	for message, want := range map[string]string{
		"see https://example.test/notes.":                  "https://example.test/notes",
		"see (https://example.test/notes), and wait":       "https://example.test/notes",
		"see `https://example.test/notes`":                 "https://example.test/notes",
		`Get "https://10.0.0.1:6443": EOF`:                 "https://10.0.0.1:6443",
		"see https://example.test:443.":                    "https://example.test:443",
		"https://[::1 or https://example.test/a":           "https://example.test/a",
		"https://example.test/50%":                         fallback,
		"https://%s/x":                                     fallback,
		"http://example.test is not secure, there is none": fallback,
	} {
		observed := offered()
		observed.Operators = []configv1.ClusterOperator{{
			ObjectMeta: metav1.ObjectMeta{Name: "till"},
			Status: configv1.ClusterOperatorStatus{Conditions: []configv1.ClusterOperatorStatusCondition{{
				Type: configv1.OperatorUpgradeable, Status: configv1.ConditionFalse, Message: message,
			}}},
		}}
		if got := clusterversion.Expose(observed).Risks[0].URL; got != want {
			t.Errorf("%s: got URL %s, want %s", message, got, want)
		}
	}
}

// TestRuleWithoutQuery has a rule that the definition of ClusterVersion allows, and that nothing can evaluate.
func TestRuleWithoutQuery(t *testing.T) {
	empty := risk("Empty", true)
	empty.MatchingRules = []configv1.ClusterCondition{{Type: "PromQL"}}
	observed := offered(empty)
	observed.Monitoring = &clusterversion.Monitoring{HasAlerts: true}
	if queries := clusterversion.Queries(observed.Retrieved); len(queries) > 0 {
		t.Errorf("got queries %q, want none", queries)
	}
	exposure := clusterversion.Expose(observed)
	want := "1.0.1, 1.1.0 Recommended=Unknown EvaluationFailed"
	if got := summary(exposure.Available, exposure.Conditional); got != want {
		t.Errorf("got updates %s, want %s", got, want)
	}
}
