package clusterversion

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// Limits of an exposure. The definition of ClusterVersion sets the first three; the others keep the object below the
// size that etcd accepts.
const (
	maxUpdates       = 500       // conditional updates, and risks of all of them
	maxRisks         = 200       // risks of an update
	maxRiskName      = 256       // length of a name, in bytes
	maxUpdateSize    = 640 << 10 // size of all conditional updates, in bytes
	maxCopiedMessage = 256       // length of a message that conditionalUpdateRisks repeats in full, in bytes
)

// Expose evaluates the risks of all offered updates: those that the update service has sent, those of firing alerts,
// for updates to another minor version also those that block it, and those of a preflight, even if its release is not
// offered.
func Expose(observed Observation) Exposure {
	e := newEvaluation(observed)
	if retrieved := observed.Retrieved; retrieved != nil && retrieved.Offer != nil {
		e.addOffered(retrieved)
	}
	ofPreflight := observed.Preflight.risks()
	for _, risk := range ofPreflight[:min(len(ofPreflight), maxUpdates-len(e.risks))] {
		if _, isKnown := e.risks[risk.Name]; !isKnown {
			risk.Conditions = []metav1.Condition{e.evaluate(risk)}
			e.risks[risk.Name] = risk
		}
	}
	e.Risks = slices.SortedFunc(maps.Values(e.risks), compareRisks)
	for _, name := range observed.AcceptedRisks {
		if _, isKnown := e.risks[name]; !isKnown {
			e.Unknown = append(e.Unknown, name)
		}
	}
	return e.Exposure
}

// addOffered adds the updates that the update service offers.
func (e *evaluation) addOffered(retrieved *Retrieved) {
	updates := retrieved.Offer.all()
	slices.SortStableFunc(updates, func(a, b configv1.ConditionalUpdate) int {
		return compareVersions(b.Release.Version, a.Release.Version)
	})
	ofCluster, ofAlerts := clusterRisks(e.observed), e.observed.Monitoring.alertRisks()
	for _, update := range updates {
		update.Risks = slices.Concat(update.Risks, ofAlerts)
		if precondition.IsMinor(retrieved.Version, update.Release.Version) {
			update.Risks = append(update.Risks, ofCluster...)
		}
		if p := e.observed.Preflight; p != nil && p.Release.Image == update.Release.Image {
			update.Risks = append(update.Risks, p.risks()...)
		}
		e.add(update)
	}
}

// all returns all updates of an offer, those without risks first.
func (o *Offer) all() []configv1.ConditionalUpdate {
	var all []configv1.ConditionalUpdate
	for _, release := range o.Updates {
		all = append(all, configv1.ConditionalUpdate{Release: release})
	}
	return append(all, o.Conditional...)
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
				if hasQuery(rule) {
					queries = append(queries, rule.PromQL.PromQL)
				}
			}
		}
	}
	slices.Sort(queries)
	return slices.Compact(queries)
}

// hasQuery reports whether a rule has a query. The definition of ClusterVersion allows rules without one.
func hasQuery(rule configv1.ClusterCondition) bool {
	return rule.PromQL != nil && rule.PromQL.PromQL != ""
}

func compareRisks(a, b configv1.ConditionalUpdateRisk) int { return strings.Compare(a.Name, b.Name) }

// compareVersions compares semantic versions, and the texts if one is not a semantic version.
func compareVersions(a, b string) int {
	parsedA, errA := semver.Parse(a)
	parsedB, errB := semver.Parse(b)
	if errA != nil || errB != nil {
		return cmp.Compare(a, b)
	}
	return parsedA.Compare(parsedB)
}

// An evaluation evaluates the risks of updates, the newest update first.
type evaluation struct {
	Exposure
	observed   Observation
	conditions map[string]metav1.Condition               // condition Applies by the name of a risk
	risks      map[string]configv1.ConditionalUpdateRisk // risks of the conditional updates, by name
	size       int                                       // size of the conditional updates, in bytes
}

func newEvaluation(observed Observation) *evaluation {
	return &evaluation{
		observed:   observed,
		conditions: map[string]metav1.Condition{},
		risks:      map[string]configv1.ConditionalUpdateRisk{},
	}
}

// add evaluates the risks of an update, and adds it.
func (e *evaluation) add(update configv1.ConditionalUpdate) {
	if len(update.Risks) == 0 {
		e.Available = append(e.Available, update.Release)
		return
	}
	evaluated := e.evaluateUpdate(update)
	added := map[string]configv1.ConditionalUpdateRisk{}
	for i, risk := range evaluated.Risks {
		if _, isKnown := e.risks[risk.Name]; !isKnown {
			added[risk.Name] = risk
		}
		evaluated.Risks[i].Conditions = shortened(risk.Conditions)
	}
	text, err := json.Marshal(evaluated)
	if err != nil || e.size+len(text) > maxUpdateSize || len(e.Conditional) == maxUpdates ||
		len(e.risks)+len(added) > maxUpdates {
		e.LeftOut = append(e.LeftOut, update.Release.Version+": a ClusterVersion has no room for it")
		return
	}
	e.size += len(text)
	maps.Copy(e.risks, added)
	e.Conditional = append(e.Conditional, evaluated)
	if evaluated.Conditions[0].Status == metav1.ConditionTrue {
		e.Available = append(e.Available, update.Release)
	}
}

// shortened returns conditions with short messages: conditionalUpdateRisks has the whole ones.
func shortened(conditions []metav1.Condition) []metav1.Condition {
	short := slices.Clone(conditions)
	for i := range short {
		short[i].Message = printable.Truncate(short[i].Message, maxCopiedMessage)
	}
	return short
}

// evaluateUpdate returns an update with the conditions and the names of its risks, and with its own condition. Risks
// that the update has no room for count in its condition, too.
func (e *evaluation) evaluateUpdate(update configv1.ConditionalUpdate) configv1.ConditionalUpdate {
	isSame := func(a, b configv1.ConditionalUpdateRisk) bool { return a.Name == b.Name }
	risks := slices.CompactFunc(slices.SortedStableFunc(slices.Values(update.Risks), compareRisks), isSame)
	for i, risk := range risks {
		condition, isEvaluated := e.conditions[risk.Name]
		if !isEvaluated {
			condition = e.evaluate(risk)
			e.conditions[risk.Name] = condition
		}
		risks[i].Conditions = []metav1.Condition{condition}
	}
	update.Conditions = []metav1.Condition{e.recommend(risks)}
	update.Risks, update.RiskNames = risks[:min(len(risks), maxRisks)], nil
	for _, risk := range update.Risks {
		update.RiskNames = append(update.RiskNames, risk.Name)
	}
	return update
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
	if !hasQuery(rule) {
		return false, errors.New("its rule has no query")
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
			URL:           cmp.Or(urlIn(finding.Message), riskURL),
			MatchingRules: []configv1.ClusterCondition{{Type: "Always"}},
		})
	}
	return all
}

// riskURL describes the risks that block updates to another minor version.
const riskURL = "https://github.com/runlevel/runlevel/blob/main/docs/status.md#what-blocks-an-update"

var possibleURL = regexp.MustCompile(`https://\S+`)

// urlIn returns the first URL in a text that the definition of ClusterVersion accepts; "" if there is none.
func urlIn(text string) string {
	for _, match := range possibleURL.FindAllString(text, -1) {
		match = strings.TrimRight(match, ".,;:!?)]}>'\"`")
		if _, err := url.ParseRequestURI(match); err == nil {
			return match
		}
	}
	return ""
}

// IsClusterRisk reports whether a risk is that of an alert or of a preflight, or one that blocks updates to another
// minor version. All others are from the update service.
func IsClusterRisk(risk configv1.ConditionalUpdateRisk) bool {
	check, _, _ := strings.Cut(risk.Name, "-")
	return isAlertRisk(risk) || isPreflightRisk(risk) || slices.Contains(clusterChecks, check)
}

// The checks of warnings about an update. The subject of RiskNotRecommended is a reason, and that of RiskAccepted the
// name of a risk.
const (
	RiskNotRecommended = "RecommendedUpdate"
	RiskAccepted       = "AcceptedRisk"
)

// UpdateWarnings warns of an update to a version that is not recommended, and names the risks that the administrator
// accepts. Risks that block the update have their own findings.
func UpdateWarnings(observed Observation, version string) []precondition.Finding {
	retrieved := observed.Retrieved
	if retrieved == nil || retrieved.Offer == nil || version == retrieved.Version {
		return nil
	}
	updates := retrieved.Offer.all()
	index := slices.IndexFunc(updates, func(u configv1.ConditionalUpdate) bool { return u.Release.Version == version })
	if index < 0 {
		return []precondition.Finding{{
			Severity: precondition.Warns, Check: RiskNotRecommended, Of: "UnknownUpdate",
			Message: fmt.Sprintf("the update service does not offer %s to clusters of %s", version,
				retrieved.Version),
			Resolution: "choosing an update that oc adm upgrade lists",
		}}
	}
	update := updates[index]
	update.Risks = slices.Concat(update.Risks, observed.Monitoring.alertRisks())
	if len(update.Risks) == 0 {
		return nil
	}
	return warningsOf(observed, update)
}

// warningsOf returns the warnings about an update with risks.
func warningsOf(observed Observation, update configv1.ConditionalUpdate) []precondition.Finding {
	evaluated := newEvaluation(observed).evaluateUpdate(update)
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
