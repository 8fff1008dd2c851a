// Package deletion contains the common parts of the deletions of machines in both APIs: the stages, the result of a
// phase, the owner of a Node, and the stage that a Machine records. It is pure: it maps values to values, and uses no
// clock, cluster or memory.
//
// The package has no phases. Phases and their order differ between the APIs, so each API has its own list, beside the
// actions: internal/machines/openshift/phases.go and internal/machines/capi/phases.go.
//
// Start with Phase.
package deletion

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/conditions"
)

// A Phase is one part of a deletion, for a scope P. It reads objects, acts, and returns a wait. It returns nil if it is
// complete, or does not apply to the machine: then the next phase begins.
type Phase[P any] func(scope P, ctx context.Context) (*Wait, error)

// Run runs phases until one waits, and returns its wait; nil if all phases are complete.
func Run[P any](ctx context.Context, scope P, phases []Phase[P]) (*Wait, error) {
	for _, phase := range phases {
		if wait, err := phase(scope, ctx); wait != nil || err != nil {
			return wait, err
		}
	}
	return nil, nil
}

// A Wait is the state of an unfinished phase. Later phases do not begin.
type Wait struct {
	Stage   Stage
	Reason  string // a reason in CamelCase
	Message string
	// After is the time until the next check if no change is observed before; zero means none.
	After time.Duration
}

// A Stage is a part of a deletion, as displayed.
type Stage string

// The stages of a deletion.
const (
	BeforeDrain     Stage = "BeforeDrain"
	Draining        Stage = "Draining"
	BeforeTerminate Stage = "BeforeTerminate"
	Terminating     Stage = "Terminating"
	RemovingNode    Stage = "RemovingNode"
	Completed       Stage = "Completed"

	// The stages that only Cluster API has.
	DetachingVolumes Stage = "DetachingVolumes"
	RemovingConfig   Stage = "RemovingConfig"
)

// The reasons for which the deletion of a Machine of machine.openshift.io waits.
const (
	HookPresent            = "HookPresent"
	DrainSkipped           = "DrainSkipped" // it is still to be recorded that the node is not drained
	PodsEnd                = "PodsEnd"
	DrainError             = "DrainError"
	InfrastructureToDelete = "Terminating" // its deletion is still to be requested
	InfrastructureGoes     = "InfrastructureGoes"
	InfrastructureProblem  = "InfrastructureProblem"
)

// StageOpenShift returns the stage of the deletion of a Machine of machine.openshift.io, and the reason of its wait, as
// far as the Machine has them: written by our controller, or by OpenShift's own. Neither records that the
// infrastructure is deleted.
func StageOpenShift(m *machinev1beta1.Machine) (Stage, string) {
	drained := conditions.Find(m.Status.Conditions, machinev1beta1.MachineDrained).Status
	exists := conditions.Find(m.Status.Conditions, machinev1beta1.InstanceExistsCondition)
	hooks := m.Spec.LifecycleHooks
	if drained != corev1.ConditionTrue {
		switch {
		case IsDrainSkipped(m):
			return Draining, DrainSkipped
		case len(hooks.PreDrain) > 0:
			return BeforeDrain, HookPresent
		case drained == corev1.ConditionFalse:
			return Draining, DrainError
		}
		return Draining, PodsEnd
	}
	switch {
	case len(hooks.PreTerminate) > 0 && exists.Reason != InstanceTerminating:
		return BeforeTerminate, HookPresent
	case exists.Status == corev1.ConditionUnknown || exists.Reason == ErrorDeleting:
		return Terminating, InfrastructureProblem
	case exists.Reason == InstanceTerminating:
		return Terminating, InfrastructureGoes
	}
	return Terminating, InfrastructureToDelete
}

// stagesClusterAPI are the stages of a deletion by the reasons of the condition Deleting, which are upstream's.
var stagesClusterAPI = map[string]Stage{
	clusterv1.MachineDeletingWaitingForPreDrainHookReason:           BeforeDrain,
	clusterv1.MachineDeletingDrainingNodeReason:                     Draining,
	clusterv1.MachineDeletingWaitingForVolumeDetachReason:           DetachingVolumes,
	clusterv1.MachineDeletingWaitingForPreTerminateHookReason:       BeforeTerminate,
	clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason: Terminating,
	clusterv1.MachineDeletingWaitingForBootstrapDeletionReason:      RemovingConfig,
	clusterv1.MachineDeletingDeletingNodeReason:                     RemovingNode,
	clusterv1.MachineDeletingDeletionCompletedReason:                Completed,
}

// StageClusterAPI returns the stage of a deletion that the condition of a Machine of Cluster API has, whether our
// controller or upstream's has written it. It is "" if there is none, as after an error.
func StageClusterAPI(m *clusterv1.Machine) Stage {
	deleting := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineDeletingCondition)
	if deleting == nil {
		return ""
	}
	return stagesClusterAPI[deleting.Reason]
}

// IsDrainSkipped reports whether a Machine of machine.openshift.io is not drained, and so not held by its pre-drain
// hooks: it is excluded by an annotation, or has no node.
func IsDrainSkipped(m *machinev1beta1.Machine) bool {
	return metav1.HasAnnotation(m.ObjectMeta, ExcludeNodeDraining) || m.Status.NodeRef == nil ||
		m.Status.NodeRef.Name == ""
}

// HooksClusterAPI returns the annotations of a Machine of Cluster API that are hooks, in their order: all keys with the
// prefix, with or without a slash behind it.
func HooksClusterAPI(m *clusterv1.Machine, prefix string) []string {
	hooks := slices.Sorted(maps.Keys(m.Annotations))
	return slices.DeleteFunc(hooks, func(key string) bool { return !strings.HasPrefix(key, prefix) })
}

// Names that the controllers of machine.openshift.io use, and the API's own package has no constant for.
const (
	// ExcludeNodeDraining is the annotation of a Machine whose node must not be drained.
	ExcludeNodeDraining = "machine.openshift.io/exclude-node-draining"
	// InstanceTerminating is the reason of InstanceExists=True once the deletion of the infrastructure was requested.
	InstanceTerminating = "InstanceTerminating"
	// ErrorDeleting is the reason of InstanceExists=True while the infrastructure can't be deleted.
	ErrorDeleting = "ErrorDeleting"
)

// HookStatusAnnotation is the annotation in which the controller of a hook reports its status.
func HookStatusAnnotation(stage Stage, name string) string {
	if stage == BeforeDrain {
		return annotation.PreDrainHookStatusPrefix + name
	}
	return annotation.PreTerminateHookStatusPrefix + name
}

// OpenShiftMachineAnnotation is the annotation of a Node that names its Machine of machine.openshift.io, as
// namespace/name. Two annotations name a Machine of Cluster API: its namespace, and its name.
const OpenShiftMachineAnnotation = "machine.openshift.io/machine"

// A NodeOwnership is the owner of the Node that a Machine's nodeRef names. After the Machine's own Node was deleted,
// another host may have joined under its name.
type NodeOwnership string

// The owners of a Node. A Machine's own Node is drained and deleted with it, and a Machine without one is unhealthy.
const (
	OwnNode     NodeOwnership = "own"
	OthersNode  NodeOwnership = "other" // node of another Machine or another host
	UnknownNode NodeOwnership = "unknown"
)

// OwnerOfNode returns the Machine that a Node names; empty if it names none.
func OwnerOfNode(node *corev1.Node) string {
	return cmp.Or(node.Annotations[clusterv1.MachineAnnotation], node.Annotations[OpenShiftMachineAnnotation])
}

// OwnershipOpenShift returns the owner of the Node that the nodeRef of a Machine of machine.openshift.io names. If its
// UID differs from that of the nodeRef, its annotations and its providerID decide.
func OwnershipOpenShift(node *corev1.Node, m *machinev1beta1.Machine) NodeOwnership {
	ref := ptr.Deref(m.Status.NodeRef, corev1.ObjectReference{})
	if ref.UID != "" && ref.UID == node.UID {
		return OwnNode
	}
	owner := OwnerOfNode(node)
	isNamed := owner == m.Namespace+"/"+m.Name // a name of Cluster API has no slash
	return ownership(node, ptr.Deref(m.Spec.ProviderID, ""), isNamed, owner != "", ref.UID == "")
}

// OwnershipClusterAPI returns the owner of the Node that the nodeRef of a Machine of Cluster API names. Such a nodeRef
// has no UID.
func OwnershipClusterAPI(node *corev1.Node, m *clusterv1.Machine) NodeOwnership {
	_, isOpenShifts := node.Annotations[OpenShiftMachineAnnotation]
	namespace, name := node.Annotations[clusterv1.ClusterNamespaceAnnotation],
		node.Annotations[clusterv1.MachineAnnotation]
	isNamed := namespace == m.Namespace && name == m.Name && !isOpenShifts
	return ownership(node, m.Spec.ProviderID, isNamed, isOpenShifts || namespace != "" && name != "",
		m.Spec.ProviderID == "")
}

// ownership is the rule of both APIs. isNamed is true if the Node names the Machine, isOwned if it names any Machine,
// and isNameEnough if the Machine records only the name of its Node.
func ownership(node *corev1.Node, providerID string, isNamed, isOwned, isNameEnough bool) NodeOwnership {
	isKnown := providerID != "" && node.Spec.ProviderID != ""
	switch {
	case isOwned && !isNamed, isKnown && providerID != node.Spec.ProviderID:
		return OthersNode
	case isNamed, isKnown, isNameEnough:
		return OwnNode
	}
	return UnknownNode
}

// IsControlPlane reports whether a Node is one of the control plane.
func IsControlPlane(node *corev1.Node) bool {
	return metav1.HasLabel(node.ObjectMeta, "node-role.kubernetes.io/control-plane") ||
		metav1.HasLabel(node.ObjectMeta, "node-role.kubernetes.io/master")
}
