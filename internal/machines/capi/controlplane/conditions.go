package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/capi/owners"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// Conditions that other owners of machines do not have.
const (
	initializedCondition = "Initialized"
	kubeconfigCondition  = "KubeconfigAvailable"
)

// report writes the status of a control plane, and returns the problem of the reconciliation, so that the queue
// retries.
func (r *Reconciler) report(ctx context.Context, s *Snapshot, problem error) error {
	changed := s.plane.DeepCopy()
	message := replicas.MessageOf(problem)
	setStatus(changed, s, message)
	return r.WriteStatus(ctx, s.plane, changed, message, problem)
}

// setStatus sets the status of a control plane. For a paused one only the condition Paused changes.
func setStatus(plane *v1alpha1.RunlevelControlPlane, s *Snapshot, problem string) {
	if owners.SetPaused(plane, s.cluster) {
		return
	}
	status := &plane.Status
	status.ObservedGeneration = plane.Generation
	if s.clusterName() == "" {
		owners.Set(plane, owners.Condition(clusterv1.AvailableCondition, false, WithoutCluster(plane)))
		return
	}
	machines := s.Members()
	status.Selector = labels.Set{
		clusterv1.ClusterNameLabel:         s.clusterName(),
		clusterv1.MachineControlPlaneLabel: "",
	}.String()
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.UpToDateReplicas = owners.Count(machines)
	if status.Versions = versionsOf(machines); len(status.Versions) > 0 {
		status.Version = status.Versions[0].Version
	}
	if data := readRemediation(s.plane, remediationInProgressAnnotation); data != nil {
		status.LastRemediation = v1alpha1.ControlPlaneLastRemediation{
			Machine: data.Machine, Time: data.Timestamp, RetryCount: data.RetryCount,
		}
	}
	summary := owners.Summary{
		Machines: machines, Current: len(machines), Wanted: s.wanted(), Problem: problem, Now: s.time,
	}
	if s.workers > 0 {
		summary.Before = fmt.Sprintf("Waiting for %d other Machines of the cluster to be deleted", s.workers)
	}
	owners.Set(plane, setInitialized(s, status, machines), s.available(machines), s.rollingOut(machines, problem),
		owners.Remediated(machines, "RunlevelControlPlane"))
	owners.SetSummary(plane, summary)
	if plane.DeletionTimestamp == nil {
		owners.Set(plane, owners.Condition(kubeconfigCondition, s.kubeconfig == "", string(s.kubeconfig)))
	}
}

// WithoutCluster returns the message for a control plane without a Cluster, with the field that an administrator has to
// set.
func WithoutCluster(plane *v1alpha1.RunlevelControlPlane) string {
	if claimed := plane.Labels[clusterv1.ClusterNameLabel]; claimed != "" {
		return fmt.Sprintf("its machines belong to Cluster %s/%s, which does not exist or has no "+
			"spec.controlPlaneRef of "+
			"{apiGroup: %s, kind: RunlevelControlPlane, name: %s}",
			plane.Namespace, claimed, v1alpha1.GroupVersion.Group, plane.Name)
	}
	return fmt.Sprintf("no Cluster of namespace %s has this control plane: set spec.controlPlaneRef of one to "+
		"{apiGroup: %s, kind: RunlevelControlPlane, name: %s}",
		plane.Namespace, v1alpha1.GroupVersion.Group, plane.Name)
}

// setInitialized returns the condition Initialized, and sets the field that Cluster API reads: if a machine has joined,
// the API server was reached. The condition stays true. It does not depend on the health of the node, since Cluster
// API's core does not look at nodes before.
func setInitialized(s *Snapshot, status *v1alpha1.RunlevelControlPlaneStatus,
	machines []*clusterv1.Machine) metav1.Condition {
	hasJoined := func(m *clusterv1.Machine) bool { return m.Status.NodeRef.IsDefined() }
	if s.isInitialized() || slices.ContainsFunc(machines, hasJoined) {
		status.Initialization.ControlPlaneInitialized = new(true)
		return owners.Condition(initializedCondition, true, "")
	}
	return owners.Condition(initializedCondition, false, "No machine of the control plane has joined yet")
}

// available returns the condition Available: a majority of the wanted machines is, and the control plane has begun to
// work.
func (s *Snapshot) available(machines []*clusterv1.Machine) metav1.Condition {
	_, _, count, _ := owners.Count(machines)
	needed := s.wanted()/2 + 1
	switch {
	case s.plane.DeletionTimestamp != nil:
		return owners.Condition(clusterv1.AvailableCondition, false, "Deletion in progress")
	case int(*count) >= needed:
		return owners.Condition(clusterv1.AvailableCondition, true, "")
	}
	message := fmt.Sprintf("%d of %d machines are available, and %d are required", *count, s.wanted(), needed)
	if problems := problemsOf(s.Machines(), ""); len(problems) > 0 {
		message += "\n" + reasons(problems)
	}
	return owners.Condition(clusterv1.AvailableCondition, false, message)
}

// rollingOut returns the condition RollingOut. The message has the reasons why machines are not up to date, the reasons
// why machines are replaced instead of updated in place, the waits of the next step, and the problem that blocks the
// step.
func (s *Snapshot) rollingOut(machines []*clusterv1.Machine, problem string) metav1.Condition {
	outdated, lines := 0, map[string]bool{}
	var replaced []string
	for _, m := range machines {
		if reason := m.Annotations[annotation.ReplacedBecause]; reason != "" && m.DeletionTimestamp != nil {
			replaced = append(replaced, fmt.Sprintf("Machine %s is replaced, not updated in place: %s", m.Name, reason))
		}
		if len(s.outdated[m.Name]) == 0 && !rolloutrules.IsUpdating(m) {
			continue
		}
		outdated++
		for _, reason := range s.outdated[m.Name] {
			lines[reason] = true
		}
	}
	if outdated == 0 {
		return owners.Condition(clusterv1.RollingOutCondition, false, strings.Join(s.step.Waits, "\n"))
	}
	all := slices.Concat(owners.RolloutReasons(maps.Keys(lines)), replaced, s.step.Waits)
	if problem != "" {
		all = append(all, problem)
	}
	message := fmt.Sprintf("Rolling out %d not up-to-date replicas", outdated)
	if len(all) > 0 {
		message += "\n" + reasons(all)
	}
	return owners.Condition(clusterv1.RollingOutCondition, true, message)
}

// versionsOf returns the versions of the machines, the lowest first. That of a kubelet counts more than the wanted one
// of its machine.
func versionsOf(machines []*clusterv1.Machine) []clusterv1.StatusVersion {
	count := map[string]int32{}
	for _, m := range machines {
		text := m.Spec.Version
		if info := m.Status.NodeInfo; info != nil && info.KubeletVersion != "" {
			text = info.KubeletVersion
		}
		if _, err := version.ParseSemantic(text); err == nil {
			count[text]++
		}
	}
	var versions []clusterv1.StatusVersion
	for text, replicas := range count {
		versions = append(versions, clusterv1.StatusVersion{Version: text, Replicas: replicas})
	}
	slices.SortFunc(versions, func(a, b clusterv1.StatusVersion) int {
		order, _ := version.MustParseSemantic(a.Version).Compare(b.Version)
		return cmp.Or(order, strings.Compare(a.Version, b.Version)) // builds of one version differ in the text alone
	})
	return versions
}

// reasons returns reasons as the lines of a message.
func reasons(all []string) string { return "* " + strings.Join(all, "\n* ") }
