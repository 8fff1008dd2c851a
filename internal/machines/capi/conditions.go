package capi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/conditions"
)

// ownConditions are the conditions that this controller writes. It does not change others.
var ownConditions = []string{
	clusterv1.PausedCondition, clusterv1.MachineAvailableCondition, clusterv1.MachineReadyCondition,
	clusterv1.MachineBootstrapConfigReadyCondition, clusterv1.MachineInfrastructureReadyCondition,
	clusterv1.MachineNodeReadyCondition, clusterv1.MachineNodeHealthyCondition,
	clusterv1.MachineDeletingCondition, clusterv1.MachineUpdatingCondition,
}

// The reasons that the conditions of infrastructure and bootstrap config have in common.
const (
	reasonReady         = clusterv1.MachineInfrastructureReadyReason
	reasonNotReady      = clusterv1.MachineInfrastructureNotReadyReason
	reasonInternalError = clusterv1.MachineInfrastructureInternalErrorReason
	reasonDeleted       = clusterv1.MachineInfrastructureDeletedReason
	reasonDoesNotExist  = clusterv1.MachineInfrastructureDoesNotExistReason
)

// setConditions computes the status, and returns after which time it changes by itself.
func (m *machineState) setConditions() time.Duration {
	m.set(m.bootstrapReady())
	m.set(m.infrastructureReady())
	for _, condition := range m.nodeConditions() {
		m.set(condition)
	}
	m.set(m.deleting())
	m.set(m.updating())
	m.set(m.ready())
	available, after := m.available()
	m.set(available)
	m.setLegacyConditions()
	m.setPhase()
	m.status.ObservedGeneration = m.m.Generation
	return after
}

// set sets a condition. The time of its last transition changes only with its status.
func (m *machineState) set(condition metav1.Condition) {
	condition.ObservedGeneration = m.m.Generation
	condition.LastTransitionTime = m.now()
	meta.SetStatusCondition(&m.status.Conditions, condition)
}

// now returns the time of the reconciliation, as the API stores it.
func (m *machineState) now() metav1.Time {
	return metav1.NewTime(m.time.UTC().Truncate(time.Second))
}

// newCondition returns a condition. Its generation and its time are set when it is added to the status.
func newCondition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func (m *machineState) bootstrapReady() metav1.Condition {
	const kind = clusterv1.MachineBootstrapConfigReadyCondition
	config := m.m.Spec.Bootstrap.ConfigRef.Kind
	isCreated := ptr.Deref(m.status.Initialization.BootstrapDataSecretCreated, false)
	if config == "" {
		return newCondition(kind, metav1.ConditionTrue, clusterv1.MachineBootstrapDataSecretProvidedReason, "")
	}
	ready := m.bootstrap.readiness(config, isCreated, "dataSecretCreated")
	ready.Type = kind
	if m.bootstrap.object == nil && m.bootstrap.isGone && isCreated && !m.m.DeletionTimestamp.IsZero() {
		ready.Reason, ready.Message = reasonDeleted, config+" has been deleted"
	}
	return ready
}

func (m *machineState) infrastructureReady() metav1.Condition {
	kind := m.m.Spec.InfrastructureRef.Kind
	isProvisioned := ptr.Deref(m.status.Initialization.InfrastructureProvisioned, false)
	ready := m.infrastructure.readiness(kind, isProvisioned, "provisioned")
	ready.Type = clusterv1.MachineInfrastructureReadyCondition
	if m.infrastructure.object == nil && m.infrastructure.isGone && isProvisioned {
		ready.Reason, ready.Message = reasonDeleted, kind+" has been deleted"
		if m.m.DeletionTimestamp.IsZero() {
			ready.Message += " while the Machine still exists"
		}
	}
	return ready
}

// readiness returns the condition Ready of an object of a kind, or one derived from a field of the contract if the
// object has none.
func (r referencedObject) readiness(kind string, isReady bool, field string) metav1.Condition {
	switch {
	case r.object == nil && r.isGone:
		return newCondition("", metav1.ConditionFalse, reasonDoesNotExist, kind+" does not exist")
	case r.object == nil:
		return newCondition("", metav1.ConditionUnknown, reasonInternalError, "Please check controller logs for errors")
	}
	if ready := meta.FindStatusCondition(r.object.Conditions(), clusterv1.ReadyCondition); ready != nil {
		return newCondition("", ready.Status, cmp.Or(ready.Reason, reasonReady), ready.Message)
	}
	if isReady {
		return newCondition("", metav1.ConditionTrue, reasonReady, "")
	}
	return newCondition("", metav1.ConditionFalse, reasonNotReady,
		fmt.Sprintf("%s status.initialization.%s is %t", kind, field, isReady))
}

func (m *machineState) deleting() metav1.Condition {
	const kind = clusterv1.MachineDeletingCondition
	if m.m.DeletionTimestamp.IsZero() {
		return newCondition(kind, metav1.ConditionFalse, clusterv1.MachineNotDeletingReason, "")
	}
	return newCondition(kind, metav1.ConditionTrue, m.deletingReason, m.deletingText)
}

// updating returns the condition Updating: whether the Machine is updated in place, and the progress. A deletion ends
// the update.
func (m *machineState) updating() metav1.Condition {
	const kind = clusterv1.MachineUpdatingCondition
	if m.updateReason == "" {
		return newCondition(kind, metav1.ConditionFalse, clusterv1.MachineNotUpdatingReason, "")
	}
	return newCondition(kind, metav1.ConditionTrue, m.updateReason, m.updateText)
}

// available returns the condition Available, and after which time the Machine will have been ready for long enough.
func (m *machineState) available() (metav1.Condition, time.Duration) {
	available := newCondition(clusterv1.MachineAvailableCondition, metav1.ConditionFalse,
		clusterv1.MachineNotReadyReason, "")
	ready := meta.FindStatusCondition(m.status.Conditions, clusterv1.MachineReadyCondition)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		return available, 0
	}
	since := ready.LastTransitionTime.Add(time.Duration(ptr.Deref(m.m.Spec.MinReadySeconds, 0)) * time.Second)
	if wait := since.Sub(m.now().Time); wait > 0 {
		available.Reason = clusterv1.MachineWaitingForMinReadySecondsReason
		return available, wait
	}
	available.Status, available.Reason = metav1.ConditionTrue, clusterv1.MachineAvailableReason
	return available, 0
}

func (m *machineState) setPhase() {
	initialization, phase := m.status.Initialization, clusterv1.MachinePhasePending
	isProvisioned := ptr.Deref(initialization.InfrastructureProvisioned, false)
	switch {
	case !m.m.DeletionTimestamp.IsZero():
		phase = clusterv1.MachinePhaseDeleting
	case meta.IsStatusConditionTrue(m.status.Conditions, clusterv1.MachineUpdatingCondition):
		phase = clusterv1.MachinePhaseUpdating
	case m.status.NodeRef.Name != "" && isProvisioned:
		phase = clusterv1.MachinePhaseRunning
	case m.m.Spec.ProviderID != "":
		phase = clusterv1.MachinePhaseProvisioned
	case ptr.Deref(initialization.BootstrapDataSecretCreated, false) && !isProvisioned:
		phase = clusterv1.MachinePhaseProvisioning
	case m.status.Phase != "":
		phase = clusterv1.MachinePhase(m.status.Phase)
	}
	if m.status.Phase != string(phase) {
		m.status.Phase, m.status.LastUpdated = string(phase), m.now()
	}
}

// A deletion, and a drain, are reported as long ones after these times.
const longDeletion, longDrain = 15 * time.Minute, 5 * time.Minute

// goneWhileDeleting are the reasons of conditions that are expected while the Machine is being deleted.
var goneWhileDeleting = []string{
	reasonDeleted, reasonDoesNotExist, clusterv1.MachineNodeDeletedReason, clusterv1.MachineNodeDoesNotExistReason,
}

// ready returns the condition Ready, which sums up the others.
func (m *machineState) ready() metav1.Condition {
	negative := []string{clusterv1.MachineDeletingCondition, clusterv1.MachineUpdatingCondition}
	types := append(slices.Clone(negative), clusterv1.MachineBootstrapConfigReadyCondition,
		clusterv1.MachineInfrastructureReadyCondition, clusterv1.MachineNodeHealthyCondition,
		clusterv1.MachineHealthCheckSucceededCondition)
	for _, gate := range m.m.Spec.ReadinessGates {
		types = append(types, gate.ConditionType)
		if gate.Polarity == clusterv1.NegativePolarityCondition {
			negative = append(negative, gate.ConditionType)
		}
	}
	ready := newCondition(clusterv1.MachineReadyCondition, metav1.ConditionTrue, clusterv1.MachineReadyReason, "")
	var problems, remarks []string
	for _, name := range types {
		condition := meta.FindStatusCondition(m.status.Conditions, name)
		if condition == nil && name == clusterv1.MachineHealthCheckSucceededCondition {
			continue
		}
		if condition == nil {
			condition = new(newCondition(name, metav1.ConditionUnknown, "", "Condition not yet reported"))
		}
		line := "* " + name + ":" + indent(m.messageOf(*condition))
		good := metav1.ConditionTrue
		if slices.Contains(negative, name) {
			good = metav1.ConditionFalse
		}
		isExpected := !m.m.DeletionTimestamp.IsZero() && slices.Contains(goneWhileDeleting, condition.Reason) &&
			!slices.Contains(negative, name)
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

// messageOf returns the message of a condition for the summary. For a deletion it names the stage, and no pods, so that
// the messages of many Machines are equal and can be grouped.
func (m *machineState) messageOf(condition metav1.Condition) string {
	switch {
	case condition.Type == clusterv1.MachineDeletingCondition && condition.Status == metav1.ConditionTrue:
		return m.stageMessage(condition)
	case condition.Message == "":
		return condition.Reason
	}
	return condition.Message
}

func (m *machineState) stageMessage(deleting metav1.Condition) string {
	now := m.time
	if now.Sub(m.m.DeletionTimestamp.Time) <= longDeletion {
		return "Machine deletion in progress, stage: " + deleting.Reason
	}
	message := "Machine deletion in progress since more than 15m, stage: " + deleting.Reason
	if deleting.Reason != clusterv1.MachineDeletingDrainingNodeReason ||
		now.Sub(m.status.Deletion.NodeDrainStartTime.Time) <= longDrain {
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

// indent returns a message behind a colon: in the same line, or as a list of its own if it is one.
func indent(message string) string {
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
func (m *machineState) nodeConditions() []metav1.Condition {
	unknown := func(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
		return []metav1.Condition{
			newCondition(clusterv1.MachineNodeReadyCondition, status, reason, message),
			newCondition(clusterv1.MachineNodeHealthyCondition, status, reason, message),
		}
	}
	isDeleting, name := !m.m.DeletionTimestamp.IsZero(), m.status.NodeRef.Name
	switch {
	case m.node.problem != nil:
		return unknown(metav1.ConditionUnknown, clusterv1.MachineNodeInspectionFailedReason, m.node.problem.Error())
	case m.node.object != nil && !m.node.isDeletionRequested:
		return []metav1.Condition{nodeReady(m.node.object), nodeHealthy(m.node.object)}
	case isDeleting && name != "":
		return unknown(metav1.ConditionFalse, clusterv1.MachineNodeDeletedReason,
			fmt.Sprintf("Node %s has been deleted", name))
	case isDeleting:
		return unknown(metav1.ConditionUnknown, clusterv1.MachineNodeDoesNotExistReason, "Node does not exist")
	case name != "":
		return unknown(metav1.ConditionFalse, clusterv1.MachineNodeDeletedReason,
			fmt.Sprintf("Node %s has been deleted while the Machine still exists", name))
	case m.m.Spec.ProviderID != "":
		return unknown(metav1.ConditionUnknown, clusterv1.MachineNodeInspectionFailedReason,
			fmt.Sprintf("Waiting for a Node with spec.providerID %s to exist", m.m.Spec.ProviderID))
	}
	return unknown(metav1.ConditionUnknown, clusterv1.MachineNodeInspectionFailedReason,
		fmt.Sprintf("Waiting for %s to report spec.providerID", m.m.Spec.InfrastructureRef.Kind))
}

func nodeReady(node *corev1.Node) metav1.Condition {
	const kind = clusterv1.MachineNodeReadyCondition
	condition, message := conditions.OfNode(node, corev1.NodeReady), ""
	if condition == nil {
		return newCondition(kind, metav1.ConditionUnknown, clusterv1.MachineNodeReadyUnknownReason,
			"* Node.Ready: Condition not yet reported")
	}
	if condition.Message != "" {
		message = "* Node.Ready: " + condition.Message
	}
	switch condition.Status {
	case corev1.ConditionTrue:
		return newCondition(kind, metav1.ConditionTrue, clusterv1.MachineNodeReadyReason, "")
	case corev1.ConditionFalse:
		return newCondition(kind, metav1.ConditionFalse, clusterv1.MachineNodeNotReadyReason, message)
	}
	return newCondition(kind, metav1.ConditionStatus(condition.Status), clusterv1.MachineNodeReadyUnknownReason,
		message)
}

// nodeHealthy sums up the conditions of a Node that report problems.
func nodeHealthy(node *corev1.Node) metav1.Condition {
	healthy := newCondition(clusterv1.MachineNodeHealthyCondition, metav1.ConditionTrue,
		clusterv1.MachineNodeHealthyReason, "")
	var lines, messages []string
	for _, name := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure,
		corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		good, condition := corev1.ConditionFalse, conditions.OfNode(node, name)
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
