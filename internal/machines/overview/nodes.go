package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A nodeList is the nodes of the cluster.
type nodeList struct {
	unknown string                  // why they can't be listed
	byName  map[string]*corev1.Node // nil if they can't
}

// hold is the node that a machine waits for, or the other machine that has the node with its providerID.
func (n *nodeList) hold(m metav1.Object, group, providerID string, since time.Time) MachineHold {
	wanted := "with its internal IP address"
	if providerID != "" {
		wanted = "with the providerID " + providerID
	}
	hold := MachineHold{Type: Node, Message: wanted, Since: &since}
	var nodes []*corev1.Node
	for _, node := range n.byName {
		owner := machineOf(node)
		if providerID != "" && node.Spec.ProviderID == providerID && owner != "" && owner != nameOf(m.GetNamespace(), m.GetName(), group) {
			nodes = append(nodes, node)
		}
	}
	if len(nodes) > 0 {
		node := slices.MinFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
		hold.Object = &kinds.ID{Kind: "Node", Name: node.Name}
		hold.Message += fmt.Sprintf(", which node %s has; it belongs to machine %s", node.Name, machineOf(node))
	}
	return hold
}

// othersCordoned are the other nodes of the control plane that are cordoned, if a node has to wait for them.
func (n *nodeList) othersCordoned(node *corev1.Node) []string {
	if !deletion.IsControlPlane(node) {
		return nil
	}
	var others []string
	for name, other := range n.byName {
		if name != node.Name && deletion.IsControlPlane(other) && other.Spec.Unschedulable {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	return others
}

// machineOf is the name of the machine that a node belongs to, by its annotations; "" if there is none.
func machineOf(node *corev1.Node) string {
	if name := node.Annotations[deletion.OpenShiftMachineAnnotation]; name != "" {
		namespace, name, _ := strings.Cut(name, "/")
		return nameOf(namespace, name, Kind.Group)
	}
	if name := node.Annotations[clusterv1.MachineAnnotation]; name != "" {
		return nameOf(node.Annotations[clusterv1.ClusterNamespaceAnnotation], name, ClusterAPIKind.Group)
	}
	return ""
}

func nameOf(namespace, name, group string) string {
	return fmt.Sprintf("%s/%s of %s", namespace, name, group)
}

// nodeRemedy returns what to do about a node that does not join.
func (h *MachineHold) nodeRemedy() []string {
	problem := "the machine was started, and its kubelet has not joined; see which nodes there are:"
	if h.Object != nil {
		problem = "a node belongs to one machine: find out which of both has the wrong providerID, before you delete that one: " +
			"infrastructure that both stand for would go with it"
	}
	return []string{problem, "kubectl get nodes -o custom-columns=NAME:.metadata.name,PROVIDERID:.spec.providerID"}
}
