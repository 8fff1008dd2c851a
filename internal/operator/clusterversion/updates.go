package clusterversion

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// An Offer is the answer of an update service for a version. Updates are sorted, the newest first.
type Offer struct {
	Current     configv1.Release // the version itself, as the service knows it
	Updates     []configv1.Release
	Conditional []configv1.ConditionalUpdate // without conditions
	LeftOut     []string                     // rejected updates, and why; a sentence each
}

// Retrieved are the updates of the release with this Version, as the update service has last offered them.
type Retrieved struct {
	Version string
	Offer   *Offer    // the last good answer; nil if there was none
	Time    time.Time // of that answer
	Err     error     // why the last try failed; it has a reason
	// IsInherited is true if the answer was taken from the status; Time is then the restart.
	IsInherited bool
	// IsPending is true if there is no answer yet since the service or the query has changed.
	IsPending bool
}

// setUpdates sets the lists of updates, and RetrievedUpdates. The last good answer stays if the service fails.
func (b *builder) setUpdates() {
	r := b.seen.Retrieved
	if r == nil {
		return
	}
	offer := r.Offer
	if offer == nil {
		offer = &Offer{}
	}
	before := b.next.ConditionalUpdates
	b.next.AvailableUpdates, b.next.ConditionalUpdates = slices.Clone(offer.Updates), nil
	for _, update := range offer.Conditional {
		b.next.ConditionalUpdates = append(b.next.ConditionalUpdates, b.withRecommended(update, before))
	}
	switch {
	case r.IsPending:
	case r.Err != nil:
		b.set(configv1.RetrievedUpdates, configv1.ConditionFalse, reason.Of(r.Err), r.failure())
	case len(offer.LeftOut) > 0:
		b.set(configv1.RetrievedUpdates, configv1.ConditionTrue, "", list("Updates that are left out", offer.LeftOut))
	default:
		b.set(configv1.RetrievedUpdates, configv1.ConditionTrue, "", "")
	}
}

// failure returns why there is no new answer, and the time of the last good one.
func (r *Retrieved) failure() string {
	text := "Unable to retrieve available updates: " + r.Err.Error()
	if r.Offer == nil || len(r.Offer.Updates)+len(r.Offer.Conditional) == 0 {
		return text
	}
	text += "; the updates that are listed were retrieved at " + moment(r.Time)
	if r.IsInherited {
		text += ", or before"
	}
	return text
}

// current returns the release itself, as the service knows it.
func (r *Retrieved) current() configv1.Release {
	if r == nil || r.Offer == nil {
		return configv1.Release{}
	}
	return r.Offer.Current
}

// withRecommended returns an update with the condition Recommended. The condition keeps its transition time
// from the update to the same image before, as long as its status is the same.
func (b *builder) withRecommended(update configv1.ConditionalUpdate,
	before []configv1.ConditionalUpdate) configv1.ConditionalUpdate {
	full := *update.DeepCopy()
	for _, known := range before {
		if known.Release.Image == full.Release.Image {
			full.Conditions = slices.Clone(known.Conditions)
		}
	}
	condition := recommended(full.Risks)
	condition.LastTransitionTime = b.now
	meta.SetStatusCondition(&full.Conditions, condition)
	return full
}

// recommended judges the risks of an update. Only the rule Always is evaluated: for a risk with other rules it is not
// known whether it applies to the cluster.
func recommended(risks []configv1.ConditionalUpdateRisk) metav1.Condition {
	condition := metav1.Condition{Type: "Recommended", Status: metav1.ConditionUnknown}
	var reasons, messages []string
	for _, risk := range risks {
		isAlways := func(rule configv1.ClusterCondition) bool { return rule.Type == "Always" }
		if !slices.ContainsFunc(risk.MatchingRules, isAlways) {
			reasons = append(reasons, "EvaluationFailed")
			messages = append(messages,
				fmt.Sprintf("Could not evaluate exposure to update risk %s (Runlevel evaluates the rule Always, and "+
					"this risk has others)\n"+
					"  %[1]s description: %[2]s\n  %[1]s URL: %[3]s", risk.Name, risk.Message, risk.URL))
			continue
		}
		condition.Status = metav1.ConditionFalse
		reasons, messages = append(reasons, riskReason(risk.Name)), append(messages, risk.Message+" "+risk.URL)
	}
	condition.Reason, condition.Message = ReasonMultipleReasons,
		printable.Truncate(strings.Join(messages, "\n\n"), longestMessage)
	if slices.Sort(reasons); len(slices.Compact(reasons)) == 1 {
		condition.Reason = reasons[0]
	}
	return condition
}

// legalReason matches the reasons of conditions that the API allows.
var legalReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// riskReason returns the name of a risk as a reason, if it can be one.
func riskReason(name string) string {
	const most = 1024 // bytes, by the definition of ClusterVersion
	if legalReason.MatchString(name) && len(name) <= most {
		return name
	}
	return "ExposedToRisks"
}

// RiskNotRecommended is the name of the warning of an update that is not recommended. It is about a reason.
const RiskNotRecommended = "RecommendedUpdate"

// NotRecommended warns of an update to a version that the service does not recommend.
func (r *Retrieved) NotRecommended(version string) []precondition.CheckFinding {
	if r.Offer == nil || version == r.Version {
		return nil
	}
	for _, release := range r.Offer.Updates {
		if release.Version == version {
			return nil
		}
	}
	found := precondition.CheckFinding{Severity: precondition.Warns, Check: RiskNotRecommended, Of: "UnknownUpdate"}
	found.Message = fmt.Sprintf("the update service does not offer %s to clusters of %s", version, r.Version)
	found.Resolution = "an update that oc adm upgrade lists"
	for _, update := range r.Offer.Conditional {
		if update.Release.Version == version {
			condition := recommended(update.Risks)
			found.Of = condition.Reason
			found.Message = fmt.Sprintf("the update from %s to %s has Recommended=%s: %s", r.Version, version,
				condition.Status, inLine(condition.Message))
		}
	}
	return []precondition.CheckFinding{found}
}
