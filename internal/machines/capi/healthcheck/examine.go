package healthcheck

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/remediation"
)

// A target is a Machine of a health check, and its Node.
type target struct {
	machine *clusterv1.Machine
	node    *corev1.Node // nil if the Machine has no nodeRef, or the Node does not exist
}

// A verdict is the result of the health check of a machine. A machine is neither healthy nor unhealthy if a timeout is
// still running, if it is being deleted, or if it has no Node yet.
type verdict struct {
	isHealthy bool
	reason    string   // reason of an unhealthy machine's condition HealthCheckSucceeded; empty for others
	problems  []string // problems of an unhealthy machine
	// again is the time until the running timeout ends; zero if none is running.
	again time.Duration
}

// message is the message of the condition HealthCheckSucceeded.
func (v verdict) message() string {
	switch {
	case v.reason == "":
		return ""
	case v.reason == clusterv1.MachineHealthCheckHasRemediateAnnotationReason:
		return "Health check failed: marked for remediation via " + clusterv1.RemediateMachineAnnotation + " annotation"
	}
	return "Health check failed:\n  * " + strings.Join(v.problems, "\n  * ")
}

// examine decides whether a machine is healthy. All problems are named; the conditions of the Machine come first.
func examine(t target, p *examination) verdict {
	if metav1.HasAnnotation(t.machine.ObjectMeta, clusterv1.RemediateMachineAnnotation) {
		return verdict{reason: clusterv1.MachineHealthCheckHasRemediateAnnotationReason}
	}
	var found verdict
	if !isClusterStarting(p.cluster, t.machine) {
		found = examineMachine(t.machine, p.check.Spec.Checks.UnhealthyMachineConditions, p.now)
		ofNode := examineNode(t, p)
		if found.reason == "" {
			found.reason = ofNode.reason
		}
		found.problems = append(found.problems, ofNode.problems...)
		found.again = remediation.Earliest(found.again, ofNode.again)
	}
	if found.reason != "" {
		found.again = 0
	}
	found.isHealthy = found.reason == "" && found.again == 0 && t.machine.DeletionTimestamp == nil && t.node != nil
	return found
}

// isClusterStarting reports whether the Cluster reports that its infrastructure, or its control plane, can't run nodes
// yet. Machines of the control plane are checked before it is initialized. In Cluster API a Cluster that does not
// report either is starting, too; here the controller runs in the cluster, and no controller may report them.
func isClusterStarting(cluster *clusterv1.Cluster, m *clusterv1.Machine) bool {
	isFalse := func(kind string) bool { return meta.IsStatusConditionFalse(cluster.Status.Conditions, kind) }
	return isFalse(clusterv1.ClusterInfrastructureReadyCondition) ||
		isFalse(clusterv1.ClusterControlPlaneInitializedCondition) &&
			!metav1.HasLabel(m.ObjectMeta, clusterv1.MachineControlPlaneLabel)
}

func examineMachine(m *clusterv1.Machine, unhealthy []clusterv1.UnhealthyMachineCondition, now time.Time) verdict {
	var found verdict
	for _, wanted := range unhealthy {
		condition := meta.FindStatusCondition(m.Status.Conditions, wanted.Type)
		if condition == nil || condition.Status != wanted.Status {
			continue
		}
		timeout := seconds(wanted.TimeoutSeconds)
		isOver, again := remediation.Over(condition.LastTransitionTime.Time, timeout, now)
		if isOver {
			found.reason = clusterv1.MachineHealthCheckUnhealthyMachineReason
			found.problems = append(found.problems,
				problem("Machine", wanted.Type, string(wanted.Status), condition.Reason, timeout))
		}
		found.again = remediation.Earliest(found.again, again)
	}
	return found
}

func examineNode(t target, p *examination) verdict {
	switch {
	case t.node == nil && t.machine.Status.NodeRef.IsDefined():
		return verdict{
			reason:   clusterv1.MachineHealthCheckNodeDeletedReason,
			problems: []string{fmt.Sprintf("Node %s has been deleted", t.machine.Status.NodeRef.Name)},
		}
	case t.node == nil:
		return examineStartup(t.machine, p)
	}
	var found verdict
	for _, wanted := range p.check.Spec.Checks.UnhealthyNodeConditions {
		for _, condition := range t.node.Status.Conditions {
			if condition.Type != wanted.Type || condition.Status != wanted.Status {
				continue
			}
			timeout := seconds(wanted.TimeoutSeconds)
			isOver, again := remediation.Over(condition.LastTransitionTime.Time, timeout, p.now)
			if isOver {
				found.reason = clusterv1.MachineHealthCheckUnhealthyNodeReason
				found.problems = append(found.problems,
					problem("Node", string(wanted.Type), string(wanted.Status), condition.Reason, timeout))
			}
			found.again = remediation.Earliest(found.again, again)
		}
	}
	return found
}

// examineStartup examines a machine that has no node yet. Its time begins when the Cluster and the machine's
// infrastructure were ready.
func examineStartup(m *clusterv1.Machine, p *examination) verdict {
	timeout := remediation.DefaultNodeStartupTimeout
	if limit := p.check.Spec.Checks.NodeStartupTimeoutSeconds; limit != nil {
		timeout = seconds(limit)
	}
	if timeout == 0 { // no limit
		return verdict{}
	}
	since := m.CreationTimestamp.Time
	for _, ready := range []*metav1.Condition{
		meta.FindStatusCondition(p.cluster.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition),
		meta.FindStatusCondition(p.cluster.Status.Conditions, clusterv1.ClusterInfrastructureReadyCondition),
		meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineInfrastructureReadyCondition),
	} {
		if ready != nil && ready.Status == metav1.ConditionTrue && ready.LastTransitionTime.After(since) {
			since = ready.LastTransitionTime.Time
		}
	}
	isOver, again := remediation.Over(since, timeout, p.now)
	if !isOver {
		return verdict{again: again}
	}
	return verdict{
		reason:   clusterv1.MachineHealthCheckNodeStartupTimeoutReason,
		problems: []string{fmt.Sprintf("Node failed to report startup in %s", timeout)},
	}
}

// problem returns a sentence about a condition, in the words of Cluster API.
func problem(kind, condition, status, reason string, timeout time.Duration) string {
	return fmt.Sprintf("Condition %s on %s is reporting status %s with reason %s for more than %s", condition, kind,
		status, reason, timeout)
}

func seconds(n *int32) time.Duration { return time.Duration(ptr.Deref(n, 0)) * time.Second }
