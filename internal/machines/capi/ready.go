package capi

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// A deletion, and a drain, are reported as long ones after these times.
const longDeletion, longDrain = 15 * time.Minute, 5 * time.Minute

// goneWhileDeleting are the reasons of conditions that are expected while the Machine is being deleted.
var goneWhileDeleting = []string{
	reasonDeleted, reasonDoesNotExist, clusterv1.MachineNodeDeletedReason, clusterv1.MachineNodeDoesNotExistReason,
}

// ready returns the condition Ready, which sums up the others.
func (f *passFacts) ready() metav1.Condition {
	types := []string{
		clusterv1.MachineDeletingCondition, clusterv1.MachineUpdatingCondition, clusterv1.MachineBootstrapConfigReadyCondition,
		clusterv1.MachineInfrastructureReadyCondition, clusterv1.MachineNodeHealthyCondition, clusterv1.MachineHealthCheckSucceededCondition,
	}
	negative := []string{clusterv1.MachineDeletingCondition, clusterv1.MachineUpdatingCondition}
	for _, gate := range f.m.Spec.ReadinessGates {
		types = append(types, gate.ConditionType)
		if gate.Polarity == clusterv1.NegativePolarityCondition {
			negative = append(negative, gate.ConditionType)
		}
	}
	ready := metav1.Condition{Type: clusterv1.MachineReadyCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineReadyReason}
	var problems, remarks []string
	for _, name := range types {
		condition := meta.FindStatusCondition(f.status.Conditions, name)
		if condition == nil && name == clusterv1.MachineHealthCheckSucceededCondition {
			continue
		}
		if condition == nil {
			condition = &metav1.Condition{Type: name, Status: metav1.ConditionUnknown, Message: "Condition not yet reported"}
		}
		line := "* " + name + ":" + indented(f.messageOf(*condition))
		good := metav1.ConditionTrue
		if slices.Contains(negative, name) {
			good = metav1.ConditionFalse
		}
		isExpected := !f.m.DeletionTimestamp.IsZero() && slices.Contains(goneWhileDeleting, condition.Reason) && !slices.Contains(negative, name)
		switch {
		case condition.Status == good || isExpected:
			if condition.Message != "" {
				remarks = append(remarks, line)
			}
		case condition.Status == metav1.ConditionUnknown:
			problems = append(problems, line)
			if ready.Status == metav1.ConditionTrue {
				ready.Status, ready.Reason = metav1.ConditionUnknown, clusterv1.MachineReadyUnknownReason
			}
		default:
			problems = append(problems, line)
			ready.Status, ready.Reason = metav1.ConditionFalse, clusterv1.MachineNotReadyReason
		}
	}
	if len(problems) == 0 {
		problems = remarks
	}
	ready.Message = strings.Join(problems, "\n")
	return ready
}

// messageOf returns the message of a condition for the summary. For a deletion it names the stage, and no pods, so that the
// messages of many Machines are equal and can be grouped.
func (f *passFacts) messageOf(condition metav1.Condition) string {
	switch {
	case condition.Type == clusterv1.MachineDeletingCondition && condition.Status == metav1.ConditionTrue:
		return f.stageMessage(condition)
	case condition.Message == "":
		return condition.Reason
	}
	return condition.Message
}

func (f *passFacts) stageMessage(deleting metav1.Condition) string {
	now := f.time
	if now.Sub(f.m.DeletionTimestamp.Time) <= longDeletion {
		return "Machine deletion in progress, stage: " + deleting.Reason
	}
	message := "Machine deletion in progress since more than 15m, stage: " + deleting.Reason
	if deleting.Reason != clusterv1.MachineDeletingDrainingNodeReason || now.Sub(f.status.Deletion.NodeDrainStartTime.Time) <= longDrain {
		return message
	}
	var causes []string
	for _, cause := range []struct{ text, name string }{
		{"cannot evict pod as it would violate the pod's disruption budget.", "PodDisruptionBudgets"},
		{"deletionTimestamp set, but still not removed from the Node", "Pods not terminating"},
		{"failed to evict Pod", "Pod eviction errors"},
		{"waiting for completion", "Pods not completed yet"},
	} {
		if strings.Contains(deleting.Message, cause.text) {
			causes = append(causes, cause.name)
		}
	}
	if len(causes) > 0 {
		message += ", delay likely due to " + strings.Join(causes, ", ")
	}
	return message
}

// indented returns a message behind a colon: in the same line, or as a list of its own if it is one.
func indented(message string) string {
	if !strings.Contains(message, "\n") && !strings.HasPrefix(message, "* ") {
		return " " + message
	}
	isBullet := func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "* ") }
	lines := strings.Split(message, "\n")
	isMixed := slices.ContainsFunc(lines, func(line string) bool { return !isBullet(line) })
	for i, line := range lines {
		switch {
		case !isMixed:
			lines[i] = "  " + line
		case isBullet(line):
			lines[i] = "    " + line
		default:
			lines[i] = "  * " + line
		}
	}
	return "\n" + strings.Join(lines, "\n")
}

// nodeConditions returns the conditions NodeReady and NodeHealthy.
func (f *passFacts) nodeConditions() []metav1.Condition {
	unknown := func(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
		return []metav1.Condition{
			{Type: clusterv1.MachineNodeReadyCondition, Status: status, Reason: reason, Message: message},
			{Type: clusterv1.MachineNodeHealthyCondition, Status: status, Reason: reason, Message: message},
		}
	}
	isDeleting, name := !f.m.DeletionTimestamp.IsZero(), f.status.NodeRef.Name
	switch {
	case f.node.problem != nil:
		return unknown(metav1.ConditionUnknown, clusterv1.MachineNodeInspectionFailedReason, f.node.problem.Error())
	case f.node.object != nil && !f.node.isDeletionRequested:
		return []metav1.Condition{nodeReady(f.node.object), nodeHealthy(f.node.object)}
	case isDeleting && name != "":
		return unknown(metav1.ConditionFalse, clusterv1.MachineNodeDeletedReason, fmt.Sprintf("Node %s has been deleted", name))
	case isDeleting:
		return unknown(metav1.ConditionUnknown, clusterv1.MachineNodeDoesNotExistReason, "Node does not exist")
	case name != "":
		return unknown(metav1.ConditionFalse, clusterv1.MachineNodeDeletedReason,
			fmt.Sprintf("Node %s has been deleted while the Machine still exists", name))
	case f.m.Spec.ProviderID != "":
		return unknown(metav1.ConditionUnknown, clusterv1.MachineNodeInspectionFailedReason,
			fmt.Sprintf("Waiting for a Node with spec.providerID %s to exist", f.m.Spec.ProviderID))
	}
	return unknown(metav1.ConditionUnknown, clusterv1.MachineNodeInspectionFailedReason,
		fmt.Sprintf("Waiting for %s to report spec.providerID", f.m.Spec.InfrastructureRef.Kind))
}

func nodeReady(node *corev1.Node) metav1.Condition {
	ready := metav1.Condition{
		Type: clusterv1.MachineNodeReadyCondition, Status: metav1.ConditionUnknown, Reason: clusterv1.MachineNodeReadyUnknownReason,
		Message: "* Node.Ready: Condition not yet reported",
	}
	condition := nodeCondition(node, corev1.NodeReady)
	if condition == nil {
		return ready
	}
	ready.Status, ready.Message = metav1.ConditionStatus(condition.Status), ""
	switch condition.Status {
	case corev1.ConditionTrue:
		ready.Reason = clusterv1.MachineNodeReadyReason
		return ready
	case corev1.ConditionFalse:
		ready.Reason = clusterv1.MachineNodeNotReadyReason
	}
	if condition.Message != "" {
		ready.Message = "* Node.Ready: " + condition.Message
	}
	return ready
}

// nodeHealthy sums up the conditions of a Node that report problems.
func nodeHealthy(node *corev1.Node) metav1.Condition {
	healthy := metav1.Condition{Type: clusterv1.MachineNodeHealthyCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineNodeHealthyReason}
	var lines, messages []string
	for _, name := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		good, condition := corev1.ConditionFalse, nodeCondition(node, name)
		if name == corev1.NodeReady {
			good = corev1.ConditionTrue
		}
		status, message := corev1.ConditionUnknown, "Condition not yet reported"
		if condition != nil {
			status, message = condition.Status, condition.Message
		}
		if status == good {
			continue
		}
		if message == "" {
			message = fmt.Sprintf("Condition is %s", status)
		}
		lines = append(lines, fmt.Sprintf("* Node.%s: %s", name, message))
		if condition != nil {
			messages = append(messages, message)
		}
		switch {
		case status != corev1.ConditionUnknown:
			healthy.Status, healthy.Reason = metav1.ConditionFalse, clusterv1.MachineNodeNotHealthyReason
		case healthy.Status == metav1.ConditionTrue:
			healthy.Status, healthy.Reason = metav1.ConditionUnknown, clusterv1.MachineNodeHealthUnknownReason
		}
	}
	if len(messages) > 1 && len(slices.Compact(slices.Clone(messages))) == 1 {
		lines = []string{"* Node.AllConditions: " + messages[0]}
	}
	healthy.Message = strings.Join(lines, "\n")
	return healthy
}

func nodeCondition(node *corev1.Node, name corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == name {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
