package cli

import (
	"cmp"
	"context"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/payload"
)

// healthyStatuses are the healthy statuses of conditions. Other conditions are ignored.
var healthyStatuses = map[string]string{
	string(configv1.OperatorAvailable): "True", string(configv1.OperatorProgressing): "False", string(configv1.OperatorDegraded): "False",
	string(configv1.OperatorUpgradeable): "True", string(clusterversion.Failing): "False", string(clusterversion.ReleaseAccepted): "True", string(clusterversion.Invalid): "False",
}

// isHealthy reports whether a condition has its healthy status.
func (c statusCondition) isHealthy() bool {
	wanted := healthyStatuses[c.Type]
	return wanted == "" || c.Status == wanted
}

// conditionsOf converts conditions.
func conditionsOf(all []configv1.ClusterOperatorStatusCondition) []statusCondition {
	shown := []statusCondition{}
	for _, condition := range all {
		shown = append(shown, statusCondition{Type: string(condition.Type), Status: string(condition.Status), Reason: condition.Reason, Message: condition.Message, Since: condition.LastTransitionTime.UTC()})
	}
	return shown
}

// updatesOf returns the updates of a ClusterVersion, the recommended ones first.
func updatesOf(listed configv1.ClusterVersionStatus) []statusUpdate {
	var all []statusUpdate
	for _, release := range listed.AvailableUpdates {
		all = append(all, statusUpdate{Version: release.Version, Image: release.Image, Recommended: "True"})
	}
	for _, update := range listed.ConditionalUpdates {
		c := meta.FindStatusCondition(update.Conditions, "Recommended")
		if c != nil && c.Status != metav1.ConditionTrue {
			all = append(all, statusUpdate{Version: update.Release.Version, Image: update.Release.Image, Recommended: string(c.Status), Reason: c.Reason})
		}
	}
	return all
}

// addClusterVersion adds the status of the ClusterVersion, if it exists and is about this release.
func (a *statusReader) addClusterVersion(ctx context.Context, s *releaseStatus) {
	if s.Release != payload.DefaultName {
		return
	}
	in, err := a.cluster.FindKind(ctx, kinds.ClusterVersion)
	if err != nil {
		s.notKnown("the status of the ClusterVersion", err)
		return
	}
	found, err := a.cluster.In(in, "").Get(ctx, theVersion.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	of := &configv1.ClusterVersion{}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, of)
	}
	if err != nil {
		s.notKnown("the status of the ClusterVersion", err)
		return
	}
	s.setVersion(of)
	a.addEvents(ctx, s)
}

// setVersion sets the status of the ClusterVersion. If there is no record, it also sets the version of the release.
func (s *releaseStatus) setVersion(of *configv1.ClusterVersion) {
	s.ClusterVersion = &versionStatus{
		Version: of.Status.Desired.Version, Image: of.Status.Desired.Image, Conditions: conditionsOf(of.Status.Conditions), Updates: updatesOf(of.Status),
	}
	if desired := of.Spec.DesiredUpdate; desired != nil && (desired.Image != "" && desired.Image != of.Status.Desired.Image || desired.Image == "" && desired.Version != of.Status.Desired.Version) {
		s.ClusterVersion.Requested = cmp.Or(desired.Version, desired.Image)
	}
	for _, condition := range s.ClusterVersion.Conditions {
		isRequested := condition.Type == string(clusterversion.ReleaseAccepted)
		if (isRequested || condition.Type == string(configv1.OperatorUpgradeable)) && condition.Status == "False" {
			s.Gates = append(s.Gates, releaseGate{Reason: condition.Reason, Message: condition.Message, Since: &condition.Since, Requested: isRequested})
		}
	}
	if s.History != nil || s.Lost != nil || len(of.Status.History) == 0 {
		return
	}
	newest := of.Status.History[0]
	s.State, s.Version = record.UpdateState(newest.State), newest.Version
	for _, earlier := range of.Status.History[1:] {
		if earlier.State == configv1.CompletedUpdate {
			s.Previous = earlier.Version
			break
		}
	}
	s.Done = newest.State == configv1.CompletedUpdate
	s.addMessage("it is only in ClusterVersion %s: it has no record here", theVersion.Name)
}

// openShiftNamespace is where the cluster-version operator writes events.
const openShiftNamespace = "openshift-cluster-version"

// mostEvents is how many of the latest events are shown.
const mostEvents = 5

// addEvents adds the latest events on the ClusterVersion.
func (a *statusReader) addEvents(ctx context.Context, s *releaseStatus) {
	about := fields.Set{"involvedObject.kind": kinds.ClusterVersion.Kind, "involvedObject.name": theVersion.Name}
	found, err := a.cluster.Client.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: about.String()})
	if apierrors.IsForbidden(err) {
		return // events are optional
	}
	s.notKnown("the events on the ClusterVersion", err)
	if err != nil {
		return
	}
	for _, event := range found.Items {
		if !slices.Contains([]string{metav1.NamespaceDefault, a.flags.cluster.namespace, openShiftNamespace}, event.Namespace) {
			continue // an administrator of that namespace may have created it
		}
		at := event.LastTimestamp.Time
		if at.IsZero() {
			at = event.EventTime.Time
		}
		s.Events = append(s.Events, statusEvent{Time: at.UTC(), Reason: event.Reason, Message: event.Message, Warning: event.Type == "Warning"})
	}
	slices.SortStableFunc(s.Events, func(a, b statusEvent) int { return b.Time.Compare(a.Time) })
	s.Events = s.Events[:min(mostEvents, len(s.Events))]
}

// addOperators adds the ClusterOperators of the release that are not healthy: those with its label; for the
// operator's release also those without a label.
func (a *statusReader) addOperators(ctx context.Context, s *releaseStatus) {
	in, err := a.cluster.FindKind(ctx, kinds.ClusterOperator)
	if err != nil {
		s.notKnown("the status of the ClusterOperators", err)
		return
	}
	found, err := a.cluster.In(in, "").List(ctx, metav1.ListOptions{})
	if err != nil {
		s.notKnown("the status of the ClusterOperators", err)
		return
	}
	for _, item := range found.Items {
		of := &configv1.ClusterOperator{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, of); err != nil {
			s.notKnown("the status of ClusterOperator "+item.GetName(), err)
			continue
		}
		if owner := of.Labels[objectmeta.ReleaseLabel]; cmp.Or(owner, payload.DefaultName) == s.Release {
			s.addOperator(of)
		}
	}
	slices.SortStableFunc(s.Operators, func(a, b operatorStatus) int { return cmp.Compare(a.rank(), b.rank()) })
}

// addOperator adds a ClusterOperator, unless it is healthy.
func (s *releaseStatus) addOperator(of *configv1.ClusterOperator) {
	shown := operatorStatus{Name: of.Name, Conditions: conditionsOf(of.Status.Conditions)}
	for _, version := range of.Status.Versions {
		if version.Name == "operator" {
			shown.Version = version.Version
		}
	}
	isAvailable := func(c statusCondition) bool { return c.Type == string(configv1.OperatorAvailable) }
	if !slices.ContainsFunc(shown.Conditions, isAvailable) {
		shown.Conditions = append(shown.Conditions, statusCondition{Type: string(configv1.OperatorAvailable), Status: "Unknown", Message: "it does not report whether it is available"})
	}
	shown.Conditions = slices.DeleteFunc(shown.Conditions, statusCondition.isHealthy)
	if len(shown.Conditions) > 0 {
		s.Operators = append(s.Operators, shown)
	}
}

// The ranks of ClusterOperators, the most severe first.
const (
	unavailableRank = iota
	degradedRank
	otherRank
)

// rank returns the severity. From otherRank on, nothing is wrong.
func (o operatorStatus) rank() int {
	has := func(kind configv1.ClusterStatusConditionType) bool {
		return slices.ContainsFunc(o.Conditions, func(c statusCondition) bool { return c.Type == string(kind) })
	}
	switch {
	case has(configv1.OperatorAvailable):
		return unavailableRank
	case has(configv1.OperatorDegraded):
		return degradedRank
	default:
		return otherRank
	}
}

// isHealthy reports whether the ClusterVersion and the ClusterOperators are healthy, and no other version is
// requested. A block of the next minor version does not count.
func (s *releaseStatus) isHealthy() bool {
	if slices.ContainsFunc(s.Operators, func(o operatorStatus) bool { return o.rank() < otherRank }) {
		return false
	}
	if s.requestedVersion() != "" {
		return false
	}
	isWrong := func(c statusCondition) bool { return c.Type != string(configv1.OperatorUpgradeable) && !c.isHealthy() }
	return s.ClusterVersion == nil || !slices.ContainsFunc(s.ClusterVersion.Conditions, isWrong)
}
