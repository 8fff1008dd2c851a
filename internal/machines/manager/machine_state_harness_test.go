package manager_test

import (
	"slices"
	"strings"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// A machineState is the state of a Machine of either API at a time, in terms that both have. Nil stands for a deleted
// Machine: its methods return false.
type machineState struct {
	metav1.ObjectMeta
	isClusterAPI           bool
	phase                  string
	node                   string
	preDrain, preTerminate []string // the hooks that are there
	isExcluded             bool     // whether the machine is excluded from draining
	isDrainSkipped         bool
	stage                  int    // stage of the deletion; unknownStage if the Machine does not report one
	finalizer              string // the controller's
	waits                  map[string]string
}

// A Machine may report these reasons for a wait: they are keys of waits, whose values are the Machine's messages.
const (
	waitsForPreDrain       = "pre-drain hooks"
	waitsForPods           = "pods"
	waitsForPreTerminate   = "pre-terminate hooks"
	waitsForInfrastructure = "infrastructure"
)

const unknownStage = -1

// The stages of a deletion, in their order, as Machines report them. In the last stage, the finalizer is removed.
var (
	openshiftStages  = []string{"not deleting", "deleting", "drained"}
	clusterAPIStages = []string{
		clusterv1.MachineNotDeletingReason, clusterv1.MachineDeletingWaitingForPreDrainHookReason,
		clusterv1.MachineDeletingDrainingNodeReason, clusterv1.MachineDeletingWaitingForVolumeDetachReason,
		clusterv1.MachineDeletingWaitingForPreTerminateHookReason,
		clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason,
		clusterv1.MachineDeletingWaitingForBootstrapDeletionReason, clusterv1.MachineDeletingDeletingNodeReason,
		clusterv1.MachineDeletingDeletionCompletedReason,
	}
)

// stages are those of the API.
func (m *machineState) stages() []string {
	if m.isClusterAPI {
		return clusterAPIStages
	}
	return openshiftStages
}

// stateOfOpenShift returns the state of a Machine of machine.openshift.io.
func stateOfOpenShift(m *machinev1beta1.Machine) *machineState {
	s := &machineState{
		ObjectMeta: m.ObjectMeta, finalizer: machinev1beta1.MachineFinalizer, waits: map[string]string{},
		phase:        phaseOf(m),
		preDrain:     hookNames(m.Spec.LifecycleHooks.PreDrain),
		preTerminate: hookNames(m.Spec.LifecycleHooks.PreTerminate),
	}
	_, s.isExcluded = m.Annotations[excludeAnnotation]
	if m.Status.NodeRef != nil {
		s.node = m.Status.NodeRef.Name
	}
	s.isDrainSkipped = conditionOf(m, machinev1beta1.MachineDrained).Message == "Node drain skipped"
	waits := map[string]machinev1beta1.ConditionType{
		waitsForPreDrain: machinev1beta1.MachineDrainable, waitsForPods: machinev1beta1.MachineDrained,
	}
	switch {
	case isDrained(m):
		s.stage = 2
		waits[waitsForPreTerminate] = machinev1beta1.MachineTerminable
	case phaseOf(m) == machinev1beta1.PhaseDeleting:
		s.stage = 1
	}
	if exists := conditionOf(m, machinev1beta1.InstanceExistsCondition); exists.Reason == "InstanceTerminating" {
		s.waits[waitsForInfrastructure] = exists.Message
	}
	for wait, kind := range waits {
		if condition := conditionOf(m, kind); condition.Status == corev1.ConditionFalse {
			s.waits[wait] = condition.Message
		}
	}
	return s
}

func hookNames(hooks []machinev1beta1.LifecycleHook) []string {
	var list []string
	for _, hook := range hooks {
		list = append(list, hook.Name)
	}
	return list
}

// stateOfClusterAPI returns the state of a Machine of cluster.x-k8s.io.
func stateOfClusterAPI(m *clusterv1.Machine) *machineState {
	s := &machineState{
		ObjectMeta: m.ObjectMeta, isClusterAPI: true, finalizer: clusterv1.MachineFinalizer, stage: unknownStage,
		node: m.Status.NodeRef.Name, phase: m.Status.Phase,
	}
	_, s.isExcluded = m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]
	s.isDrainSkipped = s.isExcluded
	for key := range m.Annotations {
		switch {
		case strings.HasPrefix(key, clusterv1.PreDrainDeleteHookAnnotationPrefix):
			s.preDrain = append(s.preDrain, key)
		case strings.HasPrefix(key, clusterv1.PreTerminateDeleteHookAnnotationPrefix):
			s.preTerminate = append(s.preTerminate, key)
		}
	}
	deleting := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineDeletingCondition)
	if deleting == nil {
		return s
	}
	s.stage = slices.Index(clusterAPIStages, deleting.Reason)
	s.waits = map[string]string{map[string]string{
		clusterv1.MachineDeletingWaitingForPreDrainHookReason:           waitsForPreDrain,
		clusterv1.MachineDeletingDrainingNodeReason:                     waitsForPods,
		clusterv1.MachineDeletingWaitingForPreTerminateHookReason:       waitsForPreTerminate,
		clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason: waitsForInfrastructure,
	}[deleting.Reason]: deleting.Message}
	return s
}

func (m *machineState) isDeleting() bool { return m != nil && m.DeletionTimestamp != nil }

func (m *machineState) isLiving() bool { return m != nil && m.DeletionTimestamp == nil }

// isDrained returns whether the Machine reports that its drain is complete. A Machine of Cluster API reports so when it
// waits for pre-terminate hooks, or is in a later stage.
func (m *machineState) isDrained() bool {
	if !m.isDeleting() {
		return false
	}
	drained := len(openshiftStages) - 1
	if m.isClusterAPI {
		drained = slices.Index(clusterAPIStages, clusterv1.MachineDeletingWaitingForPreTerminateHookReason)
	}
	return m.stage >= drained
}

// isHeldBeforeDrain reports that a hook forbids the drain. Hooks of OpenShift count neither where a drain is skipped
// nor after it; those of Cluster API always do, where there is a node.
func (m *machineState) isHeldBeforeDrain() bool {
	if !m.isDeleting() || m.node == "" || len(m.preDrain) == 0 {
		return false
	}
	return m.isClusterAPI || !m.isExcluded && !m.isDrained()
}

// isHeldBeforeTerminate reports that a hook forbids to delete the infrastructure.
func (m *machineState) isHeldBeforeTerminate() bool {
	return m.isDeleting() && len(m.preTerminate) > 0 || m.isHeldBeforeDrain() && m.isClusterAPI
}

// lacksDrain returns whether the drain must be recorded before the infrastructure may be deleted. Cluster API does not
// require this.
func (m *machineState) lacksDrain() bool { return m.isDeleting() && !m.isClusterAPI && !m.isDrained() }

// isReleased returns whether the controller has released a Machine.
func (m *machineState) isReleased() bool {
	return m.isDeleting() && !slices.Contains(m.Finalizers, m.finalizer)
}

// isIncomplete reports that a Machine is not yet to lose its finalizer.
func (m *machineState) isIncomplete() bool { return m.isDeleting() && m.stage != len(m.stages())-1 }

// excludeAnnotation marks Machines of OpenShift whose nodes must not be drained.
const excludeAnnotation = "machine.openshift.io/exclude-node-draining"

func isDeleting(m *machinev1beta1.Machine) bool { return m.DeletionTimestamp != nil }

func isDrained(m *machinev1beta1.Machine) bool {
	return isDeleting(m) && hasCondition(m, machinev1beta1.MachineDrained, corev1.ConditionTrue)
}

// conditionOf returns a condition of a machine, or an empty one.
func conditionOf(m *machinev1beta1.Machine, kind machinev1beta1.ConditionType) machinev1beta1.Condition {
	for _, condition := range m.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return machinev1beta1.Condition{}
}

func hasCondition(m *machinev1beta1.Machine, kind machinev1beta1.ConditionType, status corev1.ConditionStatus) bool {
	return conditionOf(m, kind).Status == status
}

func phaseOf(m *machinev1beta1.Machine) string { return ptr.Deref(m.Status.Phase, "") }

// names reports whether a false condition names all the causes of the wait.
func names(m *machinev1beta1.Machine, kind machinev1beta1.ConditionType, causes ...machinev1beta1.LifecycleHook) bool {
	condition := conditionOf(m, kind)
	return condition.Status == corev1.ConditionFalse &&
		!slices.ContainsFunc(causes, func(cause machinev1beta1.LifecycleHook) bool {
			return !strings.Contains(condition.Message, cause.Name)
		})
}
