package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/config/clusteroperator/v1helpers"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// The types of conditions of a ClusterVersion that OpenShift's API has no constants for.
const (
	failing         = "Failing"
	invalid         = "Invalid"
	releaseAccepted = "ReleaseAccepted"
	preflightPassed = "PreflightPassed" // Runlevel's own
)

// healthyStatuses are the healthy statuses of conditions. Other conditions are ignored.
var healthyStatuses = map[string]string{
	string(configv1.OperatorAvailable): "True", string(configv1.OperatorProgressing): "False",
	string(configv1.OperatorDegraded):    "False",
	string(configv1.OperatorUpgradeable): "True", failing: "False", releaseAccepted: "True", invalid: "False",
}

// IsHealthy reports whether a condition has its healthy status.
func (c Condition) IsHealthy() bool {
	wanted := healthyStatuses[c.Type]
	return wanted == "" || c.Status == wanted
}

// Problems returns the conditions that are not healthy, except those that are gates; that the updates are outdated; and
// the result of a preflight.
func (v *VersionStatus) Problems() []Condition {
	var problems []Condition
	for _, condition := range v.Conditions {
		isOutdated := condition.Type == string(configv1.RetrievedUpdates) && condition.Status == "False" &&
			len(v.Updates) > 0
		isGate := condition.Type == releaseAccepted || condition.Type == string(configv1.OperatorUpgradeable)
		if isOutdated || condition.Type == preflightPassed || !condition.IsHealthy() && !isGate {
			problems = append(problems, condition)
		}
	}
	return problems
}

// preflightMessages returns the result of a preflight, if the release is the operator's and the ClusterVersion has one.
func (r *Reader) preflightMessages(ctx context.Context, release string) []why.Message {
	if release != payload.DefaultName {
		return nil
	}
	version, err := why.ReadClusterVersion(ctx, r.Cluster)
	if err != nil {
		return nil // most clusters have no ClusterVersion
	}
	c := v1helpers.FindStatusCondition(version.Status.Conditions, preflightPassed)
	if c == nil {
		return nil
	}
	return []why.Message{messageOf(*c)}
}

// messageOf returns a condition as a message. Another client may have emptied the message of the condition.
func messageOf(c configv1.ClusterOperatorStatusCondition) why.Message {
	lines := strings.Split(strings.TrimSpace(c.Message), "\n")
	for i, line := range lines {
		lines[i] = printable.Line(strings.TrimSpace(line))
	}
	return why.Message{Text: fmt.Sprintf("%s=%s: %s", c.Type, c.Status, lines[0]), Details: lines[1:]}
}

// ConditionsOf converts conditions.
func ConditionsOf(all []configv1.ClusterOperatorStatusCondition) []Condition {
	shown := []Condition{}
	for _, condition := range all {
		shown = append(shown, Condition{
			Type:    string(condition.Type),
			Status:  string(condition.Status),
			Reason:  condition.Reason,
			Message: condition.Message,
			Since:   condition.LastTransitionTime.UTC(),
		})
	}
	return shown
}

// updatesOf returns the updates of a ClusterVersion, the recommended ones first.
func updatesOf(listed configv1.ClusterVersionStatus) []Update {
	var all []Update
	for _, release := range listed.AvailableUpdates {
		all = append(all, Update{Version: release.Version, Image: release.Image, Recommended: "True"})
	}
	for _, update := range listed.ConditionalUpdates {
		c := meta.FindStatusCondition(update.Conditions, "Recommended")
		if c != nil && c.Status != metav1.ConditionTrue {
			all = append(all, Update{
				Version:     update.Release.Version,
				Image:       update.Release.Image,
				Recommended: string(c.Status),
				Reason:      c.Reason,
			})
		}
	}
	return all
}

// addClusterVersion adds the status of the ClusterVersion, if it exists and is about this release.
func (r *Reader) addClusterVersion(ctx context.Context, s *Status) {
	if s.Release != payload.DefaultName {
		return
	}
	version, err := why.ReadClusterVersion(ctx, r.Cluster)
	if apierrors.IsNotFound(err) {
		return
	}
	if err != nil {
		s.notKnown("the status of the ClusterVersion", err)
		return
	}
	s.setVersion(version)
	r.addEvents(ctx, s)
}

// setVersion sets the status of the ClusterVersion and, if there is no record, the version of the release.
func (s *Status) setVersion(version *configv1.ClusterVersion) {
	s.ClusterVersion = &VersionStatus{
		Version: version.Status.Desired.Version, Image: version.Status.Desired.Image,
		Conditions: ConditionsOf(version.Status.Conditions), Updates: updatesOf(version.Status),
	}
	if desired := version.Spec.DesiredUpdate; desired != nil && desired.Mode == "" &&
		(desired.Image != "" && desired.Image != version.Status.Desired.Image ||
			desired.Image == "" && desired.Version != version.Status.Desired.Version) {
		s.ClusterVersion.Requested = cmp.Or(desired.Version, desired.Image)
	}
	for _, condition := range s.ClusterVersion.Conditions {
		isRequested := condition.Type == releaseAccepted
		if (isRequested || condition.Type == string(configv1.OperatorUpgradeable)) && condition.Status == "False" {
			s.Gates = append(s.Gates, Gate{
				Reason:    condition.Reason,
				Message:   condition.Message,
				Since:     &condition.Since,
				Requested: isRequested,
			})
		}
	}
	if s.History != nil || s.Lost != nil || len(version.Status.History) == 0 {
		return
	}
	newest := version.Status.History[0]
	s.State, s.Version = record.UpdateState(newest.State), newest.Version
	for _, earlier := range version.Status.History[1:] {
		if earlier.State == configv1.CompletedUpdate {
			s.Previous = earlier.Version
			break
		}
	}
	s.Done = newest.State == configv1.CompletedUpdate
	s.addMessage("known only from ClusterVersion %s: no record found", kinds.ClusterVersionName)
}

// openShiftNamespace is the namespace of the events of the cluster-version operator.
const openShiftNamespace = "openshift-cluster-version"

// maxEvents limits the latest events that are shown.
const maxEvents = 5

// addEvents adds the latest events on the ClusterVersion.
func (r *Reader) addEvents(ctx context.Context, s *Status) {
	about := fields.Set{
		"involvedObject.kind": kinds.ClusterVersion.Kind,
		"involvedObject.name": kinds.ClusterVersionName,
	}
	found, err := r.Cluster.Client.CoreV1().Events(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{FieldSelector: about.String()})
	if apierrors.IsForbidden(err) {
		return // events are optional
	}
	s.notKnown("the events on the ClusterVersion", err)
	if err != nil {
		return
	}
	for _, event := range found.Items {
		if !slices.Contains([]string{metav1.NamespaceDefault, r.Namespace, openShiftNamespace}, event.Namespace) {
			continue // an administrator of that namespace may have created it
		}
		eventTime := event.LastTimestamp.Time
		if eventTime.IsZero() {
			eventTime = event.EventTime.Time
		}
		s.Events = append(s.Events,
			Event{
				Time:    eventTime.UTC(),
				Reason:  event.Reason,
				Message: event.Message,
				Warning: event.Type == "Warning",
			})
	}
	slices.SortStableFunc(s.Events, func(a, b Event) int { return b.Time.Compare(a.Time) })
	s.Events = s.Events[:min(maxEvents, len(s.Events))]
}

// addOperators adds the ClusterOperators of the release that are not healthy: those with its label; for the
// operator's release also those without a label.
func (r *Reader) addOperators(ctx context.Context, s *Status) {
	all, err := r.Operators(ctx)
	s.notKnown("the status of the ClusterOperators", err)
	for _, operator := range all {
		operator.Conditions = slices.DeleteFunc(operator.Conditions, Condition.IsHealthy)
		if cmp.Or(operator.release, payload.DefaultName) == s.Release && len(operator.Conditions) > 0 {
			s.Operators = append(s.Operators, operator)
		}
	}
}

// Operators returns all ClusterOperators with all their conditions, the most severe first. With an error, it also
// returns those that can be read.
func (r *Reader) Operators(ctx context.Context) ([]OperatorStatus, error) {
	found, err := r.Cluster.List(ctx, kinds.ClusterOperator, "", "")
	if err != nil {
		return nil, err
	}
	var all []OperatorStatus
	var unread []error
	for _, item := range found {
		operator := &configv1.ClusterOperator{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, operator); err != nil {
			unread = append(unread, fmt.Errorf("ClusterOperator %s: %w", item.GetName(), err))
			continue
		}
		all = append(all, operatorStatusOf(operator))
	}
	slices.SortStableFunc(all, func(a, b OperatorStatus) int { return cmp.Compare(a.rank(), b.rank()) })
	return all, errors.Join(unread...)
}

// operatorStatusOf returns the status of a ClusterOperator.
func operatorStatusOf(operator *configv1.ClusterOperator) OperatorStatus {
	shown := OperatorStatus{
		Name: operator.Name, Conditions: ConditionsOf(operator.Status.Conditions),
		release: operator.Labels[objectmeta.ReleaseLabel],
	}
	for _, version := range operator.Status.Versions {
		if version.Name == "operator" {
			shown.Version = version.Version
		}
	}
	isAvailable := func(c Condition) bool { return c.Type == string(configv1.OperatorAvailable) }
	if !slices.ContainsFunc(shown.Conditions, isAvailable) {
		shown.Conditions = append(shown.Conditions, Condition{
			Type:    string(configv1.OperatorAvailable),
			Status:  "Unknown",
			Message: "no condition Available",
		})
	}
	return shown
}

// The ranks of ClusterOperators, the most severe first.
const (
	unavailableRank = iota
	degradedRank
	otherRank
	healthyRank
)

// rank returns the severity. From otherRank on, nothing is wrong.
func (o OperatorStatus) rank() int {
	isUnhealthy := func(kind configv1.ClusterStatusConditionType) bool {
		return slices.ContainsFunc(o.Conditions, func(c Condition) bool {
			return (kind == "" || c.Type == string(kind)) && !c.IsHealthy()
		})
	}
	switch {
	case isUnhealthy(configv1.OperatorAvailable):
		return unavailableRank
	case isUnhealthy(configv1.OperatorDegraded):
		return degradedRank
	case isUnhealthy(""):
		return otherRank
	default:
		return healthyRank
	}
}

// isHealthy reports whether the ClusterVersion and the ClusterOperators are healthy, no other version is
// requested, and no test of the release has failed. A block of the next minor version does not count.
func (s *Status) isHealthy() bool {
	if slices.ContainsFunc(s.Operators, func(o OperatorStatus) bool { return o.rank() < otherRank }) {
		return false
	}
	if s.requestedVersion() != "" || len(s.failedTests()) > 0 {
		return false
	}
	return s.ClusterVersion == nil || !slices.ContainsFunc(s.ClusterVersion.Conditions, Condition.isWrong)
}

// isWrong reports whether a condition of the ClusterVersion is unhealthy. A block of the next minor version is healthy.
func (c Condition) isWrong() bool {
	return c.Type != string(configv1.OperatorUpgradeable) && !c.IsHealthy()
}
