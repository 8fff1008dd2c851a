package clusterversion

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// Monitoring is the state of a Prometheus.
type Monitoring struct {
	Queries map[string]QueryResult // results of the queries of risks; those that were not evaluated yet are missing
	Alerts  []Alert                // sorted by their name and time
	// HasAlerts is false until alerts were read. Earlier are then the risks of alerts in the status.
	HasAlerts bool
	Earlier   []configv1.ConditionalUpdateRisk
	AlertErr  error // why the last request for alerts failed
}

// EarlierAlerts returns the risks of alerts in a status.
func EarlierAlerts(status configv1.ClusterVersionStatus) []configv1.ConditionalUpdateRisk {
	return slices.DeleteFunc(slices.Clone(status.ConditionalUpdateRisks),
		func(risk configv1.ConditionalUpdateRisk) bool { return !isAlertRisk(risk) })
}

// isAlertRisk reports whether a risk is that of an alert.
func isAlertRisk(risk configv1.ConditionalUpdateRisk) bool {
	condition := meta.FindStatusCondition(risk.Conditions, applies)
	return condition != nil && condition.Reason == alertReason
}

// A QueryResult is the result of a query of a risk.
type QueryResult struct {
	Matches bool
	Err     error
}

// An Alert is a firing alert.
type Alert struct {
	Labels, Annotations map[string]string
	Since               time.Time
}

// The effects of alerts on an update, by their names.
const (
	slowsDrains   = "which might slow node drains"
	slowsRollouts = "which may slow workload redistribution during rolling node updates"
)

var alertEffects = map[string]string{
	"PodDisruptionBudgetAtLimit":         slowsDrains,
	"KubeContainerWaiting":               slowsRollouts,
	"KubeletHealthState":                 slowsRollouts,
	"KubeNodeNotReady":                   slowsRollouts,
	"KubeNodeReadinessFlapping":          slowsRollouts,
	"KubeNodeUnreachable":                slowsRollouts,
	"VirtHandlerDaemonSetRolloutFailing": slowsRollouts,
	"VMCannotBeEvicted":                  slowsRollouts,
}

// effect returns the effect of an alert on an update; "" if it has none.
func (a Alert) effect() string {
	switch effect := alertEffects[a.Labels["alertname"]]; {
	case a.Labels["severity"] == "critical":
		return "suggesting significant cluster issues worth investigating"
	case effect == "" && a.Labels["openShiftUpdatePrecheck"] == "true":
		return "suggesting issues worth investigating before updating the cluster"
	default:
		return effect
	}
}

// alertReason is the reason of the condition Applies of the risk of an alert.
const alertReason = "Alert:firing"

// missingRunbook is the runbook of an alert that has none.
const missingRunbook = "https://github.com/runlevel/runlevel/blob/main/docs/operator.md#risks-of-updates"

// alertRisks returns the risks of alerts that affect updates, one for each name of an alert.
func (m *Monitoring) alertRisks() []configv1.ConditionalUpdateRisk {
	if m == nil {
		return nil
	}
	if !m.HasAlerts {
		return m.Earlier
	}
	risks := map[string]configv1.ConditionalUpdateRisk{}
	for _, alert := range m.Alerts {
		name, effect := alert.Labels["alertname"], alert.effect()
		if name == "" || len(name) > maxRiskName || effect == "" {
			continue
		}
		message := fmt.Sprintf("%s alert %s firing, %s. %s", printable.Line(alert.Labels["severity"]), name, effect,
			alert.details())
		risk, isKnown := risks[name]
		if !isKnown {
			risk = configv1.ConditionalUpdateRisk{
				Name: name, Message: alert.summary(),
				URL:           cmp.Or(urlIn(alert.Annotations["runbook_url"]), missingRunbook),
				MatchingRules: []configv1.ClusterCondition{{Type: "Always"}},
				Conditions: []metav1.Condition{{
					Type: applies, Status: metav1.ConditionTrue, Reason: alertReason,
					LastTransitionTime: metav1.NewTime(alert.Since.UTC().Truncate(time.Second)),
				}},
			}
			risks[name] = risk
		}
		applied := &risk.Conditions[0]
		applied.Message = printable.Truncate(joined("; ", applied.Message, message), longestReport)
	}
	return slices.SortedFunc(maps.Values(risks), compareRisks)
}

// summary returns the summary of an alert, or its name.
func (a Alert) summary() string {
	summary := cmp.Or(printable.Line(a.Annotations["summary"]), a.Labels["alertname"])
	return printable.Truncate(strings.TrimSuffix(summary, ".")+".", longestReport)
}

// details returns the object of an alert about a disruption budget, its summary, description and runbook.
func (a Alert) details() string {
	description := "The alert has no description."
	if text := joined(" | ", a.Annotations["description"], a.Annotations["message"]); text != "" {
		description = "The alert description is: " + printable.Line(text)
	}
	var budget string
	if name := a.Labels["poddisruptionbudget"]; name != "" {
		budget = printable.Line(fmt.Sprintf("Namespace=%s, PodDisruptionBudget=%s.", a.Labels["namespace"], name))
	}
	runbook := cmp.Or(urlIn(a.Annotations["runbook_url"]), "<alert does not have a runbook_url annotation>")
	return joined(" ", budget, a.summary(), description, runbook)
}
