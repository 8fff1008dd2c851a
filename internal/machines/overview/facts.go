package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// machineFacts are the facts about a machine, for judge.
type machineFacts struct {
	machine *machinev1beta1.Machine
	nodes   *nodeList
	pods    *nodePods // nil if the pods of the node were not read
	infra   infraFacts
	set     *setFacts // that replaces the machine; nil if there is none, or it was not read
	unknown []string
}

// nodePods are the pods of a node that is being drained.
type nodePods struct {
	left      []drain.HeldPod // that hold the drain
	staying   []drain.HeldPod // that end with the node
	isUnknown bool            // they can't be listed
}

// setStaying separates the pods that tolerate the cordon, and were scheduled after it: they do not hold the drain.
func (p *nodePods) setStaying() {
	all := p.left
	p.left = nil
	for _, pod := range all {
		isLeaving := pod.Hold == drain.Ending || pod.Hold == drain.Finalizers
		if pod.Toleration != "" && pod.IsAfterCordon && !isLeaving {
			p.staying = append(p.staying, pod)
		} else {
			p.left = append(p.left, pod)
		}
	}
}

// infraFacts are the facts about the infrastructure of a machine.
type infraFacts struct {
	kind    schema.GroupVersionKind // of the machine's template; empty if there is none
	isKnown bool                    // the object was read, or does not exist
	object  *unstructured.Unstructured
}

// isDeleting reports whether the machine is being deleted.
func (f *machineFacts) isDeleting() bool { return f.machine.DeletionTimestamp != nil }

// isReleased reports whether the machine has no finalizer of the machine controller.
func (f *machineFacts) isReleased() bool {
	return !slices.Contains(f.machine.Finalizers, machinev1beta1.MachineFinalizer)
}

// nodeName is the name of the machine's node.
func (f *machineFacts) nodeName() string { return enqueue.NodeName(f.machine) }

// node is the Node of the machine; nil if it does not exist, is not known, or another host has joined under its name.
func (f *machineFacts) node() *corev1.Node {
	node := f.nodes.byName[f.nodeName()]
	if node == nil || deletion.OwnershipOpenShift(node, f.machine) != deletion.OwnNode {
		return nil
	}
	return node
}

// hasNode reports whether the node is still to be deleted. The finalizers of a node that is being deleted don't hold
// the machine.
func (f *machineFacts) hasNode() bool {
	node := f.node()
	if node == nil {
		return f.nodeName() != "" && f.nodes.byName == nil
	}
	return node.DeletionTimestamp == nil
}

// infrastructure returns whether the infrastructure exists, and whether its deletion was requested. If it can't be
// read, it is assumed to be in deletion while the node exists: whether a provider has begun the deletion is not known.
func (f *machineFacts) infrastructure() (exists, isDeleting bool) {
	if object := f.infra.object; object != nil {
		return true, object.GetDeletionTimestamp() != nil
	}
	condition := conditions.Find(f.machine.Status.Conditions, machinev1beta1.InstanceExistsCondition)
	isRequested := condition.Reason == deletion.InstanceTerminating
	wasNeverMade := f.infra.kind.Kind == "" && len(f.machine.Status.Addresses) == 0
	if f.infra.isKnown || wasNeverMade {
		return false, isRequested
	}
	return true, isRequested || len(f.machine.Spec.LifecycleHooks.PreTerminate) == 0
}

// becameTrue is when a condition became true, or the deletion of the machine if that is later.
func (f *machineFacts) becameTrue(of machinev1beta1.ConditionType) *time.Time {
	since := f.machine.DeletionTimestamp.Time
	if c := conditions.Find(f.machine.Status.Conditions, of); c.Status == corev1.ConditionTrue &&
		c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	return &since
}

// templateKind is the kind of the infrastructure object in a machine's template.
func templateKind(m *machinev1beta1.Machine) schema.GroupVersionKind {
	if template, _ := infra.ParseTemplate(m.Spec.ProviderSpec.Value); template != nil {
		return template.GroupVersionKind()
	}
	return schema.GroupVersionKind{}
}

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
		if providerID != "" && node.Spec.ProviderID == providerID && owner != "" &&
			owner != nameOf(m.GetNamespace(), m.GetName(), group) {
			nodes = append(nodes, node)
		}
	}
	if len(nodes) > 0 {
		node := slices.MinFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
		hold.Object = new(kinds.NewID(kinds.Node, "", node.Name))
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
		problem = "a node belongs to one machine: find out which of both has the wrong providerID, before you delete " +
			"that one: " +
			"infrastructure that both stand for would go with it"
	}
	return []string{problem, "kubectl get nodes -o custom-columns=NAME:.metadata.name,PROVIDERID:.spec.providerID"}
}
