package clusterversion

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// An Exposure is the result of the evaluation of all risks: which updates the cluster has, and which of them are
// recommended. Updates are sorted, the newest first.
type Exposure struct {
	Available   []configv1.Release           // updates without risks, and the recommended ones of Conditional
	Conditional []configv1.ConditionalUpdate // updates with risks
	Risks       []configv1.ConditionalUpdateRisk
	Unknown     []string // accepted risks that no update has
	LeftOut     []string // updates for which the ClusterVersion has no room; a sentence each
}

// The types of the conditions of a conditional update and of a risk.
const (
	recommended = "Recommended"
	applies     = "Applies"
)

// Limits of an exposure. The definition of ClusterVersion has the first two; the last one keeps the object below the
// size that etcd accepts.
const (
	maxRisks      = 200 // of an update
	maxRiskName   = 256 // the length of a name, in bytes
	maxUpdateSize = 640 << 10
)

// Expose evaluates the risks of all offered updates: those that the update service has sent, those of firing alerts,
// and for updates to another minor version also those that block it.
func Expose(observed Observation) Exposure {
	retrieved := observed.Retrieved
	if retrieved == nil || retrieved.Offer == nil {
		return Exposure{}
	}
	var updates []configv1.ConditionalUpdate
	for _, release := range retrieved.Offer.Updates {
		updates = append(updates, configv1.ConditionalUpdate{Release: release})
	}
	updates = append(updates, retrieved.Offer.Conditional...)
	slices.SortStableFunc(updates, func(a, b configv1.ConditionalUpdate) int {
		return compareVersions(b.Release.Version, a.Release.Version)
	})
	e := evaluation{observed: observed, risks: map[string]configv1.ConditionalUpdateRisk{}}
	ofCluster := clusterRisks(observed)
	var ofAlerts []configv1.ConditionalUpdateRisk
	if observed.Monitoring != nil {
		ofAlerts = alertRisks(observed.Monitoring.Alerts)
	}
	for _, update := range updates {
		full := *update.DeepCopy()
		full.Risks = append(full.Risks, ofAlerts...)
		if precondition.IsMinor(retrieved.Version, update.Release.Version) {
			full.Risks = append(full.Risks, ofCluster...)
		}
		e.add(full)
	}
	e.Risks = slices.SortedFunc(maps.Values(e.risks), compareRisks)
	e.Risks = e.Risks[:min(len(e.Risks), maxUpdates)]
	for _, name := range observed.AcceptedRisks {
		if _, isKnown := e.risks[name]; !isKnown {
			e.Unknown = append(e.Unknown, name)
		}
	}
	return e.Exposure
}

// Queries returns the queries of the risks that an update service has sent.
func Queries(retrieved *Retrieved) []string {
	if retrieved == nil || retrieved.Offer == nil {
		return nil
	}
	var queries []string
	for _, update := range retrieved.Offer.Conditional {
		for _, risk := range update.Risks {
			for _, rule := range risk.MatchingRules {
				if rule.PromQL != nil {
					queries = append(queries, rule.PromQL.PromQL)
				}
			}
		}
	}
	slices.Sort(queries)
	return slices.Compact(queries)
}

// maxUpdates is the maximum number of conditional updates, and of their risks, by the definition of ClusterVersion.
const maxUpdates = 500

func compareRisks(a, b configv1.ConditionalUpdateRisk) int { return strings.Compare(a.Name, b.Name) }

// compareVersions compares semantic versions. Others are less.
func compareVersions(a, b string) int {
	parsedA, errA := semver.Parse(a)
	parsedB, errB := semver.Parse(b)
	if errA != nil || errB != nil {
		return cmp.Compare(a, b)
	}
	return parsedA.Compare(parsedB)
}

// An evaluation evaluates the risks of updates.
type evaluation struct {
	Exposure
	observed Observation
	risks    map[string]configv1.ConditionalUpdateRisk // by name
	size     int                                       // of the conditional updates, in bytes
}

// add evaluates the risks of an update, and adds it.
func (e *evaluation) add(update configv1.ConditionalUpdate) {
	if len(update.Risks) == 0 {
		e.Available = append(e.Available, update.Release)
		return
	}
	evaluated := e.evaluateUpdate(update)
	text, err := json.Marshal(evaluated)
	if e.size += len(text); err != nil || e.size > maxUpdateSize || len(e.Conditional) == maxUpdates {
		e.LeftOut = append(e.LeftOut, update.Release.Version+": a ClusterVersion has no room for it")
		return
	}
	for _, risk := range evaluated.Risks {
		if _, isKnown := e.risks[risk.Name]; !isKnown {
			e.risks[risk.Name] = risk
		}
	}
	e.Conditional = append(e.Conditional, evaluated)
	if evaluated.Conditions[0].Status == metav1.ConditionTrue {
		e.Available = append(e.Available, update.Release)
	}
}

// evaluateUpdate returns an update with the conditions and the names of its risks, and with its own condition.
func (e *evaluation) evaluateUpdate(update configv1.ConditionalUpdate) configv1.ConditionalUpdate {
	isSame := func(a, b configv1.ConditionalUpdateRisk) bool { return a.Name == b.Name }
	risks := slices.CompactFunc(slices.SortedStableFunc(slices.Values(update.Risks), compareRisks), isSame)
	update.Risks, update.RiskNames = risks[:min(len(risks), maxRisks)], nil
	for i, risk := range update.Risks {
		update.RiskNames = append(update.RiskNames, risk.Name)
		if known, isKnown := e.risks[risk.Name]; isKnown && isEqual(known, risk) {
			update.Risks[i] = known
		} else {
			update.Risks[i].Conditions = []metav1.Condition{e.evaluate(risk)}
		}
	}
	update.Conditions = []metav1.Condition{e.recommend(update.Risks)}
	return update
}

// isEqual reports whether two risks of one name have the same rules and texts.
func isEqual(a, b configv1.ConditionalUpdateRisk) bool {
	isSameRule := func(a, b configv1.ClusterCondition) bool {
		return a.Type == b.Type && ptr.Equal(a.PromQL, b.PromQL)
	}
	return a.Message == b.Message && a.URL == b.URL && slices.EqualFunc(a.MatchingRules, b.MatchingRules, isSameRule)
}

// evaluate returns the condition Applies of a risk. The first rule that can be evaluated decides. The source of a risk
// that always applies may have set the condition.
func (e *evaluation) evaluate(risk configv1.ConditionalUpdateRisk) metav1.Condition {
	var problems []string
	for _, rule := range risk.MatchingRules {
		matches, err := e.matches(rule)
		switch set := meta.FindStatusCondition(risk.Conditions, applies); {
		case err != nil:
			problems = append(problems, err.Error())
		case matches && set != nil && set.Status == metav1.ConditionTrue:
			return *set
		case matches:
			return metav1.Condition{Type: applies, Status: metav1.ConditionTrue, Reason: "Match"}
		default:
			return metav1.Condition{Type: applies, Status: metav1.ConditionFalse, Reason: "NotMatch"}
		}
	}
	message := fmt.Sprintf("Could not evaluate exposure to update risk %s (%s)\n  %[1]s description: %[3]s\n"+
		"  %[1]s URL: %[4]s", risk.Name, strings.Join(problems, ", "), risk.Message, risk.URL)
	return metav1.Condition{
		Type: applies, Status: metav1.ConditionUnknown, Reason: "EvaluationFailed",
		Message: printable.Truncate(message, longestMessage),
	}
}

// matches reports whether the cluster matches a rule.
func (e *evaluation) matches(rule configv1.ClusterCondition) (bool, error) {
	if rule.Type == "Always" {
		return true, nil
	}
	if e.observed.Monitoring == nil {
		return false, errors.New("the operator has no Prometheus: set --prometheus-url")
	}
	result, isEvaluated := e.observed.Monitoring.Queries[rule.PromQL.PromQL]
	if !isEvaluated {
		return false, errors.New("its query has not been evaluated yet")
	}
	return result.Matches, result.Err
}

// recommend returns the condition Recommended of an update with evaluated risks. Risks that the administrator accepts
// do not count, unless they are unknown.
func (e *evaluation) recommend(risks []configv1.ConditionalUpdateRisk) metav1.Condition {
	condition := metav1.Condition{
		Type: recommended, Status: metav1.ConditionTrue, Reason: "NotExposedToRisks",
		Message: "The update is recommended, because none of the conditional update risks apply to this cluster.",
	}
	var reasons, messages []string
	for _, risk := range risks {
		switch evaluated := meta.FindStatusCondition(risk.Conditions, applies); {
		case evaluated.Status == metav1.ConditionFalse:
		case evaluated.Status == metav1.ConditionUnknown:
			if condition.Status == metav1.ConditionTrue {
				condition.Status = metav1.ConditionUnknown
			}
			reasons, messages = append(reasons, evaluated.Reason), append(messages, evaluated.Message)
		case slices.Contains(e.observed.AcceptedRisks, risk.Name):
			condition.Reason = "AllExposedRisksAccepted"
			condition.Message = "The update is recommended, because either risk does not apply to this cluster or it " +
				"is accepted by cluster admins."
		default:
			condition.Status = metav1.ConditionFalse
			reasons, messages = append(reasons, riskReason(risk.Name)), append(messages, risk.Message+" "+risk.URL)
		}
	}
	if len(messages) > 0 {
		condition.Message = printable.Truncate(strings.Join(messages, "\n\n"), longestMessage)
		condition.Reason = ReasonMultipleReasons
		if slices.Sort(reasons); len(slices.Compact(reasons)) == 1 {
			condition.Reason = reasons[0]
		}
	}
	return condition
}

// legalReason matches reasons of conditions that the API allows.
var legalReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// riskReason returns the name of a risk as a reason if the API allows it.
func riskReason(name string) string {
	if legalReason.MatchString(name) {
		return name
	}
	return "ExposedToRisks"
}

// clusterRisks returns the risks that block updates to another minor version, as risks of conditional updates.
func clusterRisks(observed Observation) []configv1.ConditionalUpdateRisk {
	var all []configv1.ConditionalUpdateRisk
	for _, finding := range Risks(observed) {
		all = append(all, configv1.ConditionalUpdateRisk{
			Name:          printable.Truncate(finding.Name(), maxRiskName),
			Message:       finding.Message,
			URL:           cmp.Or(firstURL.FindString(finding.Message), riskURL),
			MatchingRules: []configv1.ClusterCondition{{Type: "Always"}},
		})
	}
	return all
}

// riskURL describes the risks that block updates to another minor version.
const riskURL = "https://github.com/runlevel/runlevel/blob/main/docs/status.md#what-blocks-an-update"

var firstURL = regexp.MustCompile(`https://[^\s;,)]+`)

// IsClusterRisk reports whether a risk is that of an alert, or one that blocks updates to another minor version. All
// others are from the update service.
func IsClusterRisk(risk configv1.ConditionalUpdateRisk) bool {
	if c := meta.FindStatusCondition(risk.Conditions, applies); c != nil && c.Reason == alertReason {
		return true
	}
	check, _, _ := strings.Cut(risk.Name, "-")
	return slices.Contains([]string{
		RiskUpdating, RiskOverrides, RiskDeletes, RiskAdminAck, RiskOperator, RiskMissing,
	}, check)
}

// The checks of warnings about an update. The subject of RiskNotRecommended is a reason, and that of RiskAccepted the
// name of a risk.
const (
	RiskNotRecommended = "RecommendedUpdate"
	RiskAccepted       = "AcceptedRisk"
)

// UpdateWarnings warns of an update to a version that the service does not recommend, and names the risks that the
// administrator accepts. Risks that block the update have their own findings.
func UpdateWarnings(observed Observation, version string) []precondition.Finding {
	retrieved := observed.Retrieved
	if retrieved == nil || retrieved.Offer == nil || version == retrieved.Version {
		return nil
	}
	isVersion := func(release configv1.Release) bool { return release.Version == version }
	if slices.ContainsFunc(retrieved.Offer.Updates, isVersion) {
		return nil
	}
	for _, update := range retrieved.Offer.Conditional {
		if isVersion(update.Release) {
			return warningsOf(observed, update)
		}
	}
	return []precondition.Finding{{
		Severity: precondition.Warns, Check: RiskNotRecommended, Of: "UnknownUpdate",
		Message:    fmt.Sprintf("the update service does not offer %s to clusters of %s", version, retrieved.Version),
		Resolution: "choosing an update that oc adm upgrade lists",
	}}
}

// warningsOf returns the warnings about an update with risks.
func warningsOf(observed Observation, update configv1.ConditionalUpdate) []precondition.Finding {
	e := evaluation{observed: observed}
	evaluated := e.evaluateUpdate(*update.DeepCopy())
	hop := fmt.Sprintf("from %s to %s", observed.Retrieved.Version, update.Release.Version)
	if condition := evaluated.Conditions[0]; condition.Status != metav1.ConditionTrue {
		return []precondition.Finding{{
			Severity: precondition.Warns, Check: RiskNotRecommended, Of: condition.Reason,
			Message: fmt.Sprintf("the update %s has %s=%s: %s", hop, condition.Type, condition.Status,
				inLine(condition.Message)),
			Resolution: "choosing an update that oc adm upgrade lists",
		}}
	}
	var warnings []precondition.Finding
	for _, risk := range evaluated.Risks {
		if meta.IsStatusConditionTrue(risk.Conditions, applies) {
			warnings = append(warnings, precondition.Finding{
				Severity: precondition.Warns, Check: RiskAccepted, Of: risk.Name,
				Message: fmt.Sprintf("the risk of the update %s is accepted in spec.desiredUpdate.acceptRisks: %s %s",
					hop, inLine(risk.Message), risk.URL),
				Resolution: "removing it from the accepted risks",
			})
		}
	}
	return warnings
}
