package metrics

import (
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/config/clusteroperator/v1helpers"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
)

// The metrics of the cluster-version operator.
var (
	version = describe("cluster_version",
		"A version of the cluster, and a moment in seconds since 1970, by type: 'initial' is the first release "+
			"of the history, 'cluster' the current one (both since the ClusterVersion was made), 'current' the "+
			"release that is applied (the "+
			"moment is not known, and 0), 'desired' one that is asked for and not applied yet, 'updating' one that is "+
			"being applied (since it was begun), "+
			"'failure' one that fails (since then), 'completed' the last that was complete (since then).",
		"type", "version", "image", "from_version")
	availableUpdates = describe("cluster_version_available_updates",
		"How many updates are available from an upstream in a channel.", "upstream", "channel")
	capability = describe("cluster_version_capability",
		"1 for a capability that is enabled, 0 for one that is not.", "name")
	payloadEntries = describe("cluster_version_payload",
		"How many manifests of the release are applied, and how many are pending.", "version", "type")
	conditionalSince = describe("cluster_version_conditional_update_condition_seconds",
		"Since when the condition Recommended of a conditional update is as it is.", "version", "condition", "status",
		"reason")
	retrieval = describe("cluster_version_operator_update_retrieval_timestamp_seconds",
		"When the update service last gave a good answer.", "name")
	operatorUp = describe("cluster_operator_up",
		"1 for a ClusterOperator that is available, 0 for another one. 'version' stands for the ClusterVersion.",
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
	made := moment(v.CreationTimestamp.Time)
	s.gauge(version, 0, "current", current.Version, current.Image, completed)
	s.gauge(version, made, "initial", initial.Version, initial.Image, "")
	from := initial.Version
	if completed == "" { // it is still being installed
		from = ""
	}
	s.gauge(version, made, "cluster", current.Version, current.Image, from)
	if at := slices.IndexFunc(history, func(h configv1.UpdateHistory) bool {
		return h.State == configv1.CompletedUpdate
	}); at >= 0 {
		s.gauge(version, moment(ended(history[at])), "completed", history[at].Version, history[at].Image,
			lastCompleted(history[at+1:]).Version)
	}
	if update := awaited(v); update != nil {
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
	if update := awaited(v); update != nil {
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

// operator adds the metrics of a ClusterOperator.
func (s sink) operator(o *configv1.ClusterOperator) {
	at := ""
	for _, operandVersion := range o.Status.Versions {
		if operandVersion.Name == "operator" {
			at = operandVersion.Version
		}
	}
	s.conditions(o.Name, at, o.Status.Conditions)
	if v1helpers.FindStatusCondition(o.Status.Conditions, configv1.OperatorAvailable) == nil {
		s.gauge(operatorUp, 0, o.Name, at, "NoAvailableCondition")
	}
}

// conditions adds those that are True or False. An operator that is not known to be available is not up.
func (s sink) conditions(name, at string, all []configv1.ClusterOperatorStatusCondition) {
	for _, c := range all {
		isTrue := c.Status == configv1.ConditionTrue
		if c.Type == configv1.OperatorAvailable {
			s.gauge(operatorUp, truth(isTrue), name, at, c.Reason)
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

// lastCompleted returns the newest entry that was complete; an empty one if there is none.
func lastCompleted(history []configv1.UpdateHistory) configv1.UpdateHistory {
	if last := clusterversion.LastCompleted(history); last != nil {
		return *last
	}
	return configv1.UpdateHistory{}
}

func ended(entry configv1.UpdateHistory) time.Time {
	if entry.CompletionTime == nil {
		return time.Time{}
	}
	return entry.CompletionTime.Time
}

// awaited returns the update that is requested and not applied yet, or nil.
func awaited(v *configv1.ClusterVersion) *configv1.Update {
	update, current := v.Spec.DesiredUpdate, v.Status.Desired
	if update == nil || update.Image == current.Image || update.Image == "" && update.Version == current.Version {
		return nil
	}
	return update
}

// lastChange returns when a status has last changed.
func lastChange(v *configv1.ClusterVersion) time.Time {
	times := []metav1.Time{v.CreationTimestamp}
	if len(v.Status.History) > 0 {
		times = append(times, v.Status.History[0].StartedTime, metav1.NewTime(ended(v.Status.History[0])))
	}
	for _, c := range v.Status.Conditions {
		times = append(times, c.LastTransitionTime)
	}
	return slices.MaxFunc(times, func(a, b metav1.Time) int { return a.Compare(b.Time) }).Time
}
