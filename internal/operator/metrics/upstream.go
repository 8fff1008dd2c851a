package metrics

import (
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/config/clusteroperator/v1helpers"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
)

// The metrics of the cluster-version operator.
var (
	version = describe("cluster_version",
		"A version of the cluster, and a time in seconds since 1970, by type: 'initial' is the first release of the "+
			"history, 'cluster' the current one (both since the ClusterVersion was created), 'current' the applied "+
			"release (the time is unknown, and 0), 'desired' a requested release before its apply, 'updating' "+
			"a release whose apply has begun (since then), 'failure' a failing release (since then), 'completed' the "+
			"last complete release (since then).",
		"type", "version", "image", "from_version")
	availableUpdates = describe("cluster_version_available_updates",
		"How many updates are available from an upstream in a channel.", "upstream", "channel")
	capability = describe("cluster_version_capability",
		"1 for an enabled capability, 0 for a disabled one.", "name")
	payloadEntries = describe("cluster_version_payload",
		"How many manifests of the release are applied, and how many are pending.", "version", "type")
	conditionalSince = describe("cluster_version_conditional_update_condition_seconds",
		"When the condition Recommended of a conditional update last changed its status.", "version", "condition",
		"status",
		"reason")
	riskConditions = describe("cluster_version_risk_conditions",
		"A condition of a risk of conditional updates: 1 if the risk applies to the cluster, 0 if not, -1 if it is "+
			"unknown.", "condition", "risk", "reason")
	retrieval = describe("cluster_version_operator_update_retrieval_timestamp_seconds",
		"When the update service last gave a valid response.", "name")
	operatorUp = describe("cluster_operator_up",
		"1 for an available ClusterOperator, 0 for another one. 'version' stands for the ClusterVersion.",
		"name", "version", "reason")
	operatorConditions = describe("cluster_operator_conditions",
		"A condition of a ClusterOperator: 1 for True, 0 for False. "+
			"'version' stands for the ClusterVersion.", "name", "condition", "reason")
)

// theVersion is the name of the ClusterVersion among ClusterOperators.
const theVersion = "version"

// version adds the metrics of the ClusterVersion.
func (s sink) version(v *configv1.ClusterVersion) {
	if v == nil {
		const missing = "ClusterVersionNotFound"
		s.gauge(operatorUp, 0, theVersion, "", missing)
		s.gauge(operatorConditions, 0, theVersion, string(configv1.OperatorAvailable), missing)
		return
	}
	completed := lastCompleted(v.Status.History).Version
	s.releases(v, completed)
	s.failure(v, completed)
	s.updates(v)
	s.risks(v.Status.ConditionalUpdateRisks)
	known := v.Status.Capabilities
	for _, name := range known.KnownCapabilities {
		s.gauge(capability, truth(slices.Contains(known.EnabledCapabilities, name)), string(name))
	}
	s.conditions(theVersion, completed, v.Status.Conditions)
}

// releases adds the releases of the history, and the requested one.
func (s sink) releases(v *configv1.ClusterVersion, completed string) {
	history, current := v.Status.History, v.Status.Desired
	var initial configv1.UpdateHistory
	if len(history) > 0 {
		initial = history[len(history)-1]
	}
	created := moment(v.CreationTimestamp.Time)
	s.gauge(version, 0, "current", current.Version, current.Image, completed)
	s.gauge(version, created, "initial", initial.Version, initial.Image, "")
	installed := initial.Version
	if completed == "" { // the install is not complete yet
		installed = ""
	}
	s.gauge(version, created, "cluster", current.Version, current.Image, installed)
	isCompleted := func(h configv1.UpdateHistory) bool { return h.State == configv1.CompletedUpdate }
	if index := slices.IndexFunc(history, isCompleted); index >= 0 {
		entry := history[index]
		s.gauge(version, moment(completionOf(entry)), "completed", entry.Version, entry.Image,
			lastCompleted(history[index+1:]).Version)
	}
	if update := pendingUpdate(v); update != nil {
		s.gauge(version, moment(lastChange(v)), "desired", update.Version, update.Image, completed)
	}
	if len(history) > 0 && history[0].State == configv1.PartialUpdate {
		s.gauge(version, moment(history[0].StartedTime.Time), "updating", history[0].Version, history[0].Image,
			completed)
	}
}

// failure adds the release that fails.
func (s sink) failure(v *configv1.ClusterVersion, completed string) {
	condition := v1helpers.FindStatusCondition(v.Status.Conditions, clusterversion.Failing)
	if condition == nil || condition.Status != configv1.ConditionTrue {
		return
	}
	failing := v.Status.Desired
	if update := pendingUpdate(v); update != nil {
		failing = configv1.Release{Version: update.Version, Image: update.Image}
	}
	s.gauge(version, moment(condition.LastTransitionTime.Time), "failure", failing.Version, failing.Image, completed)
}

// updates adds the updates of the update service, if there is one.
func (s sink) updates(v *configv1.ClusterVersion) {
	isRetrieved := v1helpers.IsStatusConditionTrue(v.Status.Conditions, configv1.RetrievedUpdates)
	if v.Spec.Upstream != "" || len(v.Status.AvailableUpdates) > 0 || isRetrieved {
		upstream := string(v.Spec.Upstream)
		if upstream == "" {
			upstream = "<default>"
		}
		s.gauge(availableUpdates, float64(len(v.Status.AvailableUpdates)), upstream, v.Spec.Channel)
	}
	for _, update := range v.Status.ConditionalUpdates {
		for _, c := range update.Conditions {
			if c.Type == "Recommended" {
				s.gauge(conditionalSince, moment(c.LastTransitionTime.Time), update.Release.Version, c.Type,
					string(c.Status), c.Reason)
			}
		}
	}
}

// risks adds the risks of conditional updates.
func (s sink) risks(risks []configv1.ConditionalUpdateRisk) {
	values := map[metav1.ConditionStatus]float64{metav1.ConditionTrue: 1, metav1.ConditionUnknown: -1}
	for _, risk := range risks {
		for _, c := range risk.Conditions {
			s.gauge(riskConditions, values[c.Status], c.Type, risk.Name, c.Reason)
		}
	}
}

// operator adds the metrics of a ClusterOperator.
func (s sink) operator(o *configv1.ClusterOperator) {
	version := ""
	for _, operandVersion := range o.Status.Versions {
		if operandVersion.Name == "operator" {
			version = operandVersion.Version
		}
	}
	s.conditions(o.Name, version, o.Status.Conditions)
	if v1helpers.FindStatusCondition(o.Status.Conditions, configv1.OperatorAvailable) == nil {
		s.gauge(operatorUp, 0, o.Name, version, "NoAvailableCondition")
	}
}

// conditions adds the conditions with the status True or False. An operator is up only if Available is True.
func (s sink) conditions(name, version string, all []configv1.ClusterOperatorStatusCondition) {
	for _, c := range all {
		isTrue := c.Status == configv1.ConditionTrue
		if c.Type == configv1.OperatorAvailable {
			s.gauge(operatorUp, truth(isTrue), name, version, c.Reason)
		}
		if isTrue || c.Status == configv1.ConditionFalse {
			s.gauge(operatorConditions, truth(isTrue), name, string(c.Type), c.Reason)
		}
	}
}

// payload adds how many manifests are applied.
func (s sink) payload(applied *clusterversion.AppliedRelease) {
	done := min(applied.Done, applied.Total)
	if applied.IsComplete {
		done = applied.Total
	}
	s.gauge(payloadEntries, float64(done), applied.Release.Version, "applied")
	s.gauge(payloadEntries, float64(applied.Total-done), applied.Release.Version, "pending")
}

// lastCompleted returns the newest completed entry, or an empty one.
func lastCompleted(history []configv1.UpdateHistory) configv1.UpdateHistory {
	if last := clusterversion.LastCompleted(history); last != nil {
		return *last
	}
	return configv1.UpdateHistory{}
}

func completionOf(entry configv1.UpdateHistory) time.Time {
	return ptr.Deref(entry.CompletionTime, metav1.Time{}).Time
}

// pendingUpdate returns the requested update if it is not applied yet, or nil. A preflight does not request one.
func pendingUpdate(v *configv1.ClusterVersion) *configv1.Update {
	update, current := v.Spec.DesiredUpdate, v.Status.Desired
	isSame := update == nil || update.Mode != "" || update.Image == current.Image ||
		update.Image == "" && (update.Version == "" || update.Version == current.Version)
	if isSame {
		return nil
	}
	return update
}

// lastChange returns when a status has last changed.
func lastChange(v *configv1.ClusterVersion) time.Time {
	times := []metav1.Time{v.CreationTimestamp}
	if len(v.Status.History) > 0 {
		times = append(times, v.Status.History[0].StartedTime, metav1.NewTime(completionOf(v.Status.History[0])))
	}
	for _, c := range v.Status.Conditions {
		times = append(times, c.LastTransitionTime)
	}
	return slices.MaxFunc(times, func(a, b metav1.Time) int { return a.Compare(b.Time) }).Time
}
