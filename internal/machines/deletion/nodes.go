package deletion

import (
	"cmp"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// OpenShiftMachineAnnotation is the annotation of a Node that names its Machine of machine.openshift.io, as
// namespace/name. Two annotations name a Machine of Cluster API: its namespace, and its name.
const OpenShiftMachineAnnotation = "machine.openshift.io/machine"

// A NodeOwnership is the owner of the Node that a Machine's nodeRef names. The Machine's own Node may be gone, and
// another host may have joined under its name since.
type NodeOwnership string

// The owners of a Node. A Machine's own Node is drained and deleted with it, and a Machine without one is unhealthy.
const (
	OwnNode     NodeOwnership = "own"
	OthersNode  NodeOwnership = "other" // of another Machine, or another host
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
