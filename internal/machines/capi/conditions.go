package capi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ownConditions are the conditions that this controller writes. Others are left as they are.
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
func (f *machineState) setConditions() time.Duration {
	f.set(f.bootstrapReady())
	f.set(f.infrastructureReady())
	for _, condition := range f.nodeConditions() {
		f.set(condition)
	}
	f.set(f.deleting())
	f.set(f.updating())
	f.set(f.ready())
	available, after := f.available()
	f.set(available)
	f.setLegacyConditions()
	f.setPhase()
	f.status.ObservedGeneration = f.m.Generation
	return after
}

// set sets a condition. The time of its last transition changes only with its status.
func (f *machineState) set(condition metav1.Condition) {
	condition.ObservedGeneration = f.m.Generation
	condition.LastTransitionTime = f.now()
	meta.SetStatusCondition(&f.status.Conditions, condition)
}

// now returns the time of the pass, as the API stores it.
func (f *machineState) now() metav1.Time {
	return metav1.NewTime(f.time.UTC().Truncate(time.Second))
}

func (f *machineState) bootstrapReady() metav1.Condition {
	kind, isCreated := f.m.Spec.Bootstrap.ConfigRef.Kind,
		ptr.Deref(f.status.Initialization.BootstrapDataSecretCreated, false)
	if kind == "" {
		return metav1.Condition{
			Type: clusterv1.MachineBootstrapConfigReadyCondition, Status: metav1.ConditionTrue,
			Reason: clusterv1.MachineBootstrapDataSecretProvidedReason,
		}
	}
	ready := mirrored(f.bootstrap, kind, isCreated, "dataSecretCreated")
	ready.Type = clusterv1.MachineBootstrapConfigReadyCondition
	if f.bootstrap.object == nil && f.bootstrap.isGone && isCreated && !f.m.DeletionTimestamp.IsZero() {
		ready.Reason, ready.Message = reasonDeleted, kind+" has been deleted"
	}
	return ready
}

func (f *machineState) infrastructureReady() metav1.Condition {
	kind, isProvisioned := f.m.Spec.InfrastructureRef.Kind,
		ptr.Deref(f.status.Initialization.InfrastructureProvisioned, false)
	ready := mirrored(f.infrastructure, kind, isProvisioned, "provisioned")
	ready.Type = clusterv1.MachineInfrastructureReadyCondition
	switch {
	case f.infrastructure.object != nil || !f.infrastructure.isGone || !isProvisioned:
	case f.m.DeletionTimestamp.IsZero():
		ready.Reason, ready.Message = reasonDeleted, kind+" has been deleted while the Machine still exists"
	default:
		ready.Reason, ready.Message = reasonDeleted, kind+" has been deleted"
	}
	return ready
}

// mirrored returns the condition Ready of an object, or one derived from a field of the contract if it has none.
func mirrored(of referenced, kind string, isReady bool, field string) metav1.Condition {
	switch {
	case of.object == nil && of.isGone:
		return metav1.Condition{
			Status:  metav1.ConditionFalse,
			Reason:  reasonDoesNotExist,
			Message: kind + " does not exist",
		}
	case of.object == nil:
		return metav1.Condition{
			Status:  metav1.ConditionUnknown,
			Reason:  reasonInternalError,
			Message: "Please check controller logs for errors",
		}
	}
	if ready := meta.FindStatusCondition(of.object.Conditions(), clusterv1.ReadyCondition); ready != nil {
		return metav1.Condition{Status: ready.Status, Reason: cmp.Or(ready.Reason, reasonReady), Message: ready.Message}
	}
	if isReady {
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonReady}
	}
	return metav1.Condition{
		Status:  metav1.ConditionFalse,
		Reason:  reasonNotReady,
		Message: fmt.Sprintf("%s status.initialization.%s is %t", kind, field, isReady),
	}
}

func (f *machineState) deleting() metav1.Condition {
	if f.m.DeletionTimestamp.IsZero() {
		return metav1.Condition{
			Type:   clusterv1.MachineDeletingCondition,
			Status: metav1.ConditionFalse,
			Reason: clusterv1.MachineNotDeletingReason,
		}
	}
	return metav1.Condition{
		Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue, Reason: f.deletingReason,
		Message: f.deletingText,
	}
}

// updating returns the condition Updating: whether the Machine is updated in place, and the progress. A deletion ends
// the update.
func (f *machineState) updating() metav1.Condition {
	if f.updateReason != "" {
		return metav1.Condition{
			Type: clusterv1.MachineUpdatingCondition, Status: metav1.ConditionTrue, Reason: f.updateReason,
			Message: f.updateText,
		}
	}
	return metav1.Condition{
		Type:   clusterv1.MachineUpdatingCondition,
		Status: metav1.ConditionFalse,
		Reason: clusterv1.MachineNotUpdatingReason,
	}
}

// available returns the condition Available, and after which time the Machine will have been ready for long enough.
func (f *machineState) available() (metav1.Condition, time.Duration) {
	available := metav1.Condition{
		Type:   clusterv1.MachineAvailableCondition,
		Status: metav1.ConditionFalse,
		Reason: clusterv1.MachineNotReadyReason,
	}
	ready := meta.FindStatusCondition(f.status.Conditions, clusterv1.MachineReadyCondition)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		return available, 0
	}
	since := ready.LastTransitionTime.Add(time.Duration(ptr.Deref(f.m.Spec.MinReadySeconds, 0)) * time.Second)
	if wait := since.Sub(f.now().Time); wait > 0 {
		available.Reason = clusterv1.MachineWaitingForMinReadySecondsReason
		return available, wait
	}
	available.Status, available.Reason = metav1.ConditionTrue, clusterv1.MachineAvailableReason
	return available, 0
}

func (f *machineState) setPhase() {
	initialization, phase := f.status.Initialization, clusterv1.MachinePhasePending
	isProvisioned := ptr.Deref(initialization.InfrastructureProvisioned, false)
	switch {
	case !f.m.DeletionTimestamp.IsZero():
		phase = clusterv1.MachinePhaseDeleting
	case meta.IsStatusConditionTrue(f.status.Conditions, clusterv1.MachineUpdatingCondition):
		phase = clusterv1.MachinePhaseUpdating
	case f.status.NodeRef.Name != "" && isProvisioned:
		phase = clusterv1.MachinePhaseRunning
	case f.m.Spec.ProviderID != "":
		phase = clusterv1.MachinePhaseProvisioned
	case ptr.Deref(initialization.BootstrapDataSecretCreated, false) && !isProvisioned:
		phase = clusterv1.MachinePhaseProvisioning
	case f.status.Phase != "":
		phase = clusterv1.MachinePhase(f.status.Phase)
	}
	if f.status.Phase != string(phase) {
		f.status.Phase, f.status.LastUpdated = string(phase), f.now()
	}
}

// A deletion, and a drain, are reported as long ones after these times.
const longDeletion, longDrain = 15 * time.Minute, 5 * time.Minute

// goneWhileDeleting are the reasons of conditions that are expected while the Machine is being deleted.
var goneWhileDeleting = []string{
	reasonDeleted, reasonDoesNotExist, clusterv1.MachineNodeDeletedReason, clusterv1.MachineNodeDoesNotExistReason,
}

// ready returns the condition Ready, which sums up the others.
func (f *machineState) ready() metav1.Condition {
	types := []string{
		clusterv1.MachineDeletingCondition, clusterv1.MachineUpdatingCondition,
		clusterv1.MachineBootstrapConfigReadyCondition,
		clusterv1.MachineInfrastructureReadyCondition, clusterv1.MachineNodeHealthyCondition,
		clusterv1.MachineHealthCheckSucceededCondition,
	}
	negative := []string{clusterv1.MachineDeletingCondition, clusterv1.MachineUpdatingCondition}
	for _, gate := range f.m.Spec.ReadinessGates {
		types = append(types, gate.ConditionType)
		if gate.Polarity == clusterv1.NegativePolarityCondition {
			negative = append(negative, gate.ConditionType)
		}
	}
	ready := metav1.Condition{
		Type:   clusterv1.MachineReadyCondition,
		Status: metav1.ConditionTrue,
		Reason: clusterv1.MachineReadyReason,
	}
	var problems, remarks []string
	for _, name := range types {
		condition := meta.FindStatusCondition(f.status.Conditions, name)
		if condition == nil && name == clusterv1.MachineHealthCheckSucceededCondition {
			continue
		}
		if condition == nil {
			condition = &metav1.Condition{
				Type:    name,
				Status:  metav1.ConditionUnknown,
				Message: "Condition not yet reported",
			}
		}
		line := "* " + name + ":" + indented(f.messageOf(*condition))
		good := metav1.ConditionTrue
		if slices.Contains(negative, name) {
			good = metav1.ConditionFalse
		}
		isExpected := !f.m.DeletionTimestamp.IsZero() && slices.Contains(goneWhileDeleting, condition.Reason) &&
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
func (f *machineState) messageOf(condition metav1.Condition) string {
	switch {
	case condition.Type == clusterv1.MachineDeletingCondition && condition.Status == metav1.ConditionTrue:
		return f.stageMessage(condition)
	case condition.Message == "":
		return condition.Reason
	}
	return condition.Message
}

func (f *machineState) stageMessage(deleting metav1.Condition) string {
	now := f.time
	if now.Sub(f.m.DeletionTimestamp.Time) <= longDeletion {
		return "Machine deletion in progress, stage: " + deleting.Reason
	}
	message := "Machine deletion in progress since more than 15m, stage: " + deleting.Reason
	if deleting.Reason != clusterv1.MachineDeletingDrainingNodeReason ||
		now.Sub(f.status.Deletion.NodeDrainStartTime.Time) <= longDrain {
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
