// This file has the conditions of v1beta1, in status.deprecated: tools still read them.
//
//lint:file-ignore SA1019 Cluster API's own controller still writes them.

package capi

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

var legacyTrue = clusterv1.Condition{Status: corev1.ConditionTrue}

func legacyFalse(reason string, severity clusterv1.ConditionSeverity, message string) clusterv1.Condition {
	return clusterv1.Condition{Status: corev1.ConditionFalse, Reason: reason, Severity: severity, Message: message}
}

// setLegacy sets a condition. Ready is the first one in the list, and the others are sorted by type.
func (m *machineState) setLegacy(name clusterv1.ConditionType, condition clusterv1.Condition) {
	if m.status.Deprecated == nil {
		m.status.Deprecated = &clusterv1.MachineDeprecatedStatus{}
	}
	if m.status.Deprecated.V1Beta1 == nil {
		m.status.Deprecated.V1Beta1 = &clusterv1.MachineV1Beta1DeprecatedStatus{}
	}
	list := &m.status.Deprecated.V1Beta1.Conditions
	condition.Type, condition.LastTransitionTime = name, m.now()
	if i := slices.IndexFunc(*list, func(c clusterv1.Condition) bool { return c.Type == name }); i >= 0 {
		before := (*list)[i]
		before.LastTransitionTime = condition.LastTransitionTime
		if before == condition {
			return
		}
		(*list)[i] = condition
	} else {
		*list = append(*list, condition)
	}
	slices.SortStableFunc(*list, func(a, b clusterv1.Condition) int {
		const first = clusterv1.ReadyV1Beta1Condition
		if (a.Type == first) != (b.Type == first) {
			return map[bool]int{true: -1, false: 1}[a.Type == first]
		}
		return strings.Compare(string(a.Type), string(b.Type))
	})
}

// legacy returns a condition, or nil.
func (m *machineState) legacy(name clusterv1.ConditionType) *clusterv1.Condition {
	if m.status.Deprecated == nil || m.status.Deprecated.V1Beta1 == nil {
		return nil
	}
	list := m.status.Deprecated.V1Beta1.Conditions
	if i := slices.IndexFunc(list, func(c clusterv1.Condition) bool { return c.Type == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

// setLegacyConditions sets the conditions that each reconciliation writes.
func (m *machineState) setLegacyConditions() {
	initialization := m.status.Initialization
	if m.m.Spec.Bootstrap.ConfigRef.IsDefined() {
		m.setLegacyOf(clusterv1.BootstrapReadyV1Beta1Condition, m.bootstrap,
			ptr.Deref(initialization.BootstrapDataSecretCreated, false),
			clusterv1.WaitingForDataSecretFallbackV1Beta1Reason)
	}
	m.setLegacyOf(clusterv1.InfrastructureReadyV1Beta1Condition, m.infrastructure,
		ptr.Deref(initialization.InfrastructureProvisioned, false),
		clusterv1.WaitingForInfrastructureFallbackV1Beta1Reason)
	if m.node.refusal == "" {
		m.setLegacyNode()
	}
	m.setLegacy(clusterv1.ReadyV1Beta1Condition, m.legacyReady())
}

// setLegacyOf mirrors the condition Ready of an object.
func (m *machineState) setLegacyOf(name clusterv1.ConditionType, object referencedObject, isReady bool,
	waiting string) {
	isDeleting := !m.m.DeletionTimestamp.IsZero()
	switch {
	case object.object == nil && object.isGone && isDeleting:
		m.setLegacy(name, legacyFalse(clusterv1.DeletedV1Beta1Reason, clusterv1.ConditionSeverityInfo, ""))
		return
	case object.object == nil:
		return
	case isDeleting:
		waiting = clusterv1.DeletingV1Beta1Reason
	}
	ready := meta.FindStatusCondition(object.object.Conditions(), clusterv1.ReadyCondition)
	condition := legacyTrue
	switch {
	case ready != nil:
		condition = clusterv1.Condition{
			Status:  corev1.ConditionStatus(ready.Status),
			Reason:  ready.Reason,
			Message: ready.Message,
		}
		if condition.Status == corev1.ConditionFalse {
			condition.Severity = clusterv1.ConditionSeverityInfo
		}
	case !isReady:
		condition = legacyFalse(waiting, clusterv1.ConditionSeverityInfo, "")
	}
	m.setLegacy(name, condition)
}

func (m *machineState) setLegacyNode() {
	const name = clusterv1.MachineNodeHealthyV1Beta1Condition
	infrastructure := m.infrastructure.object
	switch {
	case m.m.Spec.ProviderID == "":
		m.setLegacy(name, legacyFalse(clusterv1.WaitingForNodeRefV1Beta1Reason, clusterv1.ConditionSeverityInfo, ""))
	case m.node.problem != nil:
		m.setLegacy(name, clusterv1.Condition{
			Status: corev1.ConditionUnknown, Reason: clusterv1.NodeInspectionFailedV1Beta1Reason,
			Message: "Failed to get the Node for this Machine by ProviderID",
		})
	case m.node.object == nil && !m.m.DeletionTimestamp.IsZero():
	case m.node.object == nil && m.status.NodeRef.Name != "":
		m.setLegacy(name, legacyFalse(clusterv1.NodeNotFoundV1Beta1Reason, clusterv1.ConditionSeverityError, ""))
	case m.node.object == nil:
		m.setLegacy(name, legacyFalse(clusterv1.NodeProvisioningV1Beta1Reason, clusterv1.ConditionSeverityWarning,
			"Waiting for a node with matching ProviderID to exist"))
	case infrastructure == nil || infrastructure.GetDeletionTimestamp() != nil:
		m.setLegacy(name, legacyFalse(clusterv1.DeletingV1Beta1Reason, clusterv1.ConditionSeverityInfo, ""))
	default:
		m.setLegacy(name, legacyHealth(m.node.object))
	}
}

// legacyHealth sums up the conditions of a Node. Conditions that are not reported are ignored.
func legacyHealth(node *corev1.Node) clusterv1.Condition {
	var words []string
	isBad := false
	for _, condition := range node.Status.Conditions {
		isPressure := slices.Contains([]corev1.NodeConditionType{
			corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
		}, condition.Type)
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue ||
			isPressure && condition.Status != corev1.ConditionFalse {
			words = append(words, "Node condition "+string(condition.Type)+" is "+string(condition.Status))
			isBad = isBad || condition.Status != corev1.ConditionUnknown
		}
	}
	message := strings.Join(words, ". ")
	switch {
	case isBad:
		return legacyFalse(clusterv1.NodeConditionsFailedV1Beta1Reason, clusterv1.ConditionSeverityWarning, message)
	case len(words) == 4:
		return clusterv1.Condition{
			Status:  corev1.ConditionUnknown,
			Reason:  clusterv1.NodeConditionsFailedV1Beta1Reason,
			Message: message,
		}
	}
	return legacyTrue
}

// legacyReady returns the worst of the summarized conditions: of several, the first one.
func (m *machineState) legacyReady() clusterv1.Condition {
	worst, rank := legacyTrue, 0
	for _, name := range []clusterv1.ConditionType{
		clusterv1.InfrastructureReadyV1Beta1Condition, clusterv1.BootstrapReadyV1Beta1Condition,
		clusterv1.MachineHealthCheckSucceededV1Beta1Condition, clusterv1.MachineOwnerRemediatedV1Beta1Condition,
		clusterv1.DrainingSucceededV1Beta1Condition,
	} {
		if condition := m.legacy(name); condition != nil && legacyRank(*condition) > rank {
			worst, rank = *condition, legacyRank(*condition)
		}
	}
	return worst
}

func legacyRank(c clusterv1.Condition) int {
	switch {
	case c.Status == corev1.ConditionTrue:
		return 0
	case c.Status == corev1.ConditionUnknown:
		return 1
	case c.Severity == clusterv1.ConditionSeverityInfo:
		return 2
	case c.Severity == clusterv1.ConditionSeverityWarning:
		return 3
	}
	return 4
}
