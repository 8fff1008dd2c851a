package clusterversion_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// preflightOf returns the observation of a complete release, and of a preflight in a phase. The update service offers
// the version of the preflight if it is 1.1.0.
func preflightOf(version string, phase clusterversion.AcceptancePhase) clusterversion.Observation {
	observed := completed(time.Minute, "1.0.0")
	observed.Applied.Mode = graph.Reconcile
	observed.Preflight = &clusterversion.Preflight{
		Acceptance: clusterversion.Acceptance{Release: release(version), Phase: phase},
	}
	observed.Retrieved = &clusterversion.Retrieved{
		Version: "1.0.0", Offer: &clusterversion.Offer{Updates: []configv1.Release{release("1.1.0")}},
	}
	return observed
}

// refusing returns the result of a preflight with refused objects.
func refusing(version string, count int) clusterversion.Observation {
	observed := preflightOf(version, clusterversion.Judging)
	observed.Preflight.Effects = &clusterversion.Effects{Changed: 1, Refused: count}
	for i := range count {
		observed.Preflight.Findings = append(observed.Preflight.Findings, precondition.Finding{
			Check: "RefusedObject", Severity: precondition.Fails, Resolution: "changing the manifest",
			Message: fmt.Sprintf("Service shop/web-%d: %s", i, strings.Repeat("the API server refuses it ", 400)),
		})
		observed.Preflight.Effects.Deleted = append(observed.Preflight.Effects.Deleted,
			kinds.NewID(kinds.ConfigMap, "shop", fmt.Sprintf("old-%d", i)))
	}
	return observed
}

// TestResultOfAPreflightIsBounded: a condition and a risk have room for a release with 5,000 refused objects.
func TestResultOfAPreflightIsBounded(t *testing.T) {
	next := follow(completed(0, "1.0.0"), refusing("1.1.0", 5000))
	c := condition(t, next, clusterversion.PreflightPassed)
	if c.Status != configv1.ConditionFalse || c.Reason != "ObjectsRefused" || len(c.Message) > 32<<10 {
		t.Errorf("condition is %s %s with %d bytes", c.Status, c.Reason, len(c.Message))
	}
	for _, want := range []string{
		"the cluster refuses 5000 objects. The update creates 0 objects, changes 1, and deletes 5000 " +
			"(ConfigMap shop/old-0, ", " and 4995 more)",
		"\n* fails with RefusedObject: Service shop/web-0: ", "\n* and 4990 more",
	} {
		if !strings.Contains(c.Message, want) {
			t.Errorf("%q is not in\n%s", want, c.Message)
		}
	}
	if risks := next.ConditionalUpdateRisks; len(risks) != 1 || risks[0].Name != "PreflightRefusedObject" ||
		len(risks[0].Message) > 3000 || !strings.HasSuffix(risks[0].Message, "(and 4999 more)") {
		t.Errorf("risks are %+v", risks)
	}
	if again := clusterversion.Next(next, refusing("1.1.0", 5000)); !equality.Semantic.DeepEqual(next, again) {
		t.Errorf("the same result has changed the status:\n%s", cmp.Diff(next, again))
	}
}

// TestResultOfAPreflightStaysUntilTheNextOne: an operator that has just started has no result yet.
func TestResultOfAPreflightStaysUntilTheNextOne(t *testing.T) {
	first := follow(completed(0, "1.0.0"), preflightOf("1.1.0", clusterversion.Retrieving))
	if c := condition(t, first, clusterversion.PreflightPassed); c.Status != configv1.ConditionUnknown ||
		c.Reason != "RetrievePayload" {
		t.Errorf("a first preflight has %s=%s (%s)", c.Type, c.Status, c.Reason)
	}
	for name, version := range map[string]string{"offered": "1.1.0", "not offered": "2.0.0"} {
		result := clusterversion.Next(first, refusing(version, 2))
		pending := clusterversion.Next(result, preflightOf(version, clusterversion.Judging))
		if !equality.Semantic.DeepEqual(result, pending) || len(result.ConditionalUpdateRisks) != 1 {
			t.Errorf("%s: the status of a repetition (-before +after):\n%s", name, cmp.Diff(result, pending))
		}
		changed := preflightOf(version, clusterversion.Judging)
		changed.Generation++
		edited := clusterversion.Next(clusterversion.Next(result, changed), changed)
		if c := condition(t, edited, clusterversion.PreflightPassed); c.Status != configv1.ConditionUnknown ||
			len(edited.ConditionalUpdateRisks) > 0 {
			t.Errorf("%s: another spec has the result of the one before: %+v", name, edited)
		}
		other := clusterversion.Next(result, preflightOf("1.2.0", clusterversion.Loading))
		if c := condition(t, other, clusterversion.PreflightPassed); c.Status != configv1.ConditionUnknown ||
			len(other.ConditionalUpdateRisks) > 0 {
			t.Errorf("%s: another release has the result of the one before: %+v", name, other)
		}
		failed := preflightOf(version, clusterversion.Retrieving)
		failed.Preflight.Err = errors.New("no answer")
		c := condition(t, clusterversion.Next(result, failed), clusterversion.PreflightPassed)
		if !strings.HasSuffix(c.Message, "failure=no answer") {
			t.Errorf("%s: the failure is not in %q", name, c.Message)
		}
		ended := clusterversion.Next(result, completed(time.Hour, "1.0.0"))
		for _, c := range ended.Conditions {
			if c.Type == clusterversion.PreflightPassed {
				t.Errorf("%s: the result is left after the preflight", name)
			}
		}
	}
}

// TestPreflightIsARiskOfItsUpdateOnly: the update that the preflight has checked is not recommended, unless its risks
// are accepted.
func TestPreflightIsARiskOfItsUpdateOnly(t *testing.T) {
	observed := refusing("1.1.0", 1)
	observed.Retrieved.Offer.Updates = append(observed.Retrieved.Offer.Updates, release("1.0.1"))
	list := func() string {
		var all []string
		e := clusterversion.Expose(observed)
		for _, available := range e.Available {
			all = append(all, available.Version)
		}
		for _, update := range e.Conditional {
			all = append(all, fmt.Sprint(update.Release.Version, update.RiskNames, update.Conditions[0].Status))
		}
		return strings.Join(all, " ")
	}
	if diff := cmp.Diff("1.0.1 1.1.0[PreflightRefusedObject]False", list()); diff != "" {
		t.Errorf("updates (-want +got)\n%s", diff)
	}
	observed.AcceptedRisks = []string{"PreflightRefusedObject"}
	if diff := cmp.Diff("1.1.0 1.0.1 1.1.0[PreflightRefusedObject]True", list()); diff != "" {
		t.Errorf("updates with the risk accepted (-want +got)\n%s", diff)
	}
	observed.Retrieved = nil
	if risks := clusterversion.Expose(observed).Risks; len(risks) != 1 {
		t.Errorf("without an update service, the risks are %+v", risks)
	}
}
