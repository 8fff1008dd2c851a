package nodelink

import (
	"fmt"
	"maps"
	"slices"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// candidates are the facts that decide whether a node and a Machine belong together.
type candidates struct {
	node     *corev1.Node
	machines []*machinev1beta1.Machine // those with the providerID or an internal IP of the node

	// The following are set only if there is exactly one machine.
	nodes  []*corev1.Node            // nodes with the machine's providerID or internal IP, including the node itself
	former *corev1.Node              // the node that the machine names, if it is another one and still exists
	owners []*machinev1beta1.Machine // those that name the node, by its UID, or that the node names
}

// judge returns the Machine that the node belongs to, or the problem that prevents the link. If both are empty, the
// node has no Machine.
func judge(seen candidates) (*machinev1beta1.Machine, string) {
	if len(seen.machines) == 0 {
		return nil, ""
	}
	for _, check := range []func(candidates) string{
		linkedToClusterAPI, severalMachines, severalNodes, differentProviderIDs, linkedToAnotherNode,
		linkedToAnotherMachine,
	} {
		if problem := check(seen); problem != "" {
			return nil, problem
		}
	}
	return seen.machines[0], ""
}

// clusterAPIMachine is the annotation of a Node that belongs to a Machine of Cluster API.
const clusterAPIMachine = "cluster.x-k8s.io/machine"

// linkedToClusterAPI returns a problem if the node has a Machine of the other API: both would drain and delete it, each
// by its own hooks.
func linkedToClusterAPI(seen candidates) string {
	owner, ok := seen.node.Annotations[clusterAPIMachine]
	if !ok {
		return ""
	}
	return fmt.Sprintf("node %s is not linked, it belongs to Machine %s of cluster.x-k8s.io, and a node has one "+
		"Machine: delete one of "+
		"both, and the annotation %s of the node if that was the other one", seen.node.Name, owner, clusterAPIMachine)
}

// most limits how many names a message lists.
const most = 3

func severalMachines(seen candidates) string {
	if len(seen.machines) < 2 {
		return ""
	}
	var names []string
	for _, machine := range seen.machines {
		names = append(names, fmt.Sprintf("%s (%s)", name(machine), sharedIdentity(seen.node, machine)))
	}
	slices.Sort(names)
	return fmt.Sprintf("node %s is not linked, it could be that of several Machines: %s", seen.node.Name,
		printable.Few(names, most))
}

func severalNodes(seen candidates) string {
	if len(seen.nodes) < 2 {
		return ""
	}
	machine := seen.machines[0]
	var names []string
	for _, node := range seen.nodes {
		names = append(names, fmt.Sprintf("%s (%s)", node.Name, sharedIdentity(node, machine)))
	}
	slices.Sort(names)
	return fmt.Sprintf("Machine %s is not linked, several nodes could be its node: %s", name(machine),
		printable.Few(names, most))
}

// differentProviderIDs returns a problem if a pair shares only an address: addresses are reused for new machines.
func differentProviderIDs(seen candidates) string {
	ofNode, ofMachine := seen.node.Spec.ProviderID, providerID(seen.machines[0])
	if ofNode == "" || ofMachine == "" || ofNode == ofMachine {
		return ""
	}
	return fmt.Sprintf("node %s is not linked, it has an internal IP of Machine %s, but another providerID: %s "+
		"instead of %s",
		seen.node.Name, name(seen.machines[0]), ofNode, ofMachine)
}

func linkedToAnotherNode(seen candidates) string {
	machine := seen.machines[0]
	ref := machine.Status.NodeRef
	switch {
	case ref == nil:
		return ""
	case ref.Name == seen.node.Name && machine.DeletionTimestamp != nil && ref.UID != "" && ref.UID != seen.node.UID &&
		!hasProviderID(seen.node, machine):
		// Another host may have joined under the name, and the address, of a Machine's former host.
		return fmt.Sprintf("node %s is not linked, its Machine %s is being deleted with an earlier node of that "+
			"name, which may be "+
			"another host: they have no providerID in common", seen.node.Name, name(machine))
	case ref.Name == seen.node.Name:
		return ""
	case machine.DeletionTimestamp != nil: // the node of a deletion does not change
		return fmt.Sprintf("node %s is not linked, its Machine %s is being deleted with node %s", seen.node.Name,
			name(machine), ref.Name)
	case seen.former != nil:
		return fmt.Sprintf("node %s is not linked, its Machine %s is linked to node %s, which exists",
			seen.node.Name, name(machine), ref.Name)
	}
	return ""
}

func linkedToAnotherMachine(seen candidates) string {
	var names []string
	for _, owner := range seen.owners {
		if owner.UID != seen.machines[0].UID {
			names = append(names, name(owner))
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("node %s is not linked to Machine %s, it is linked to Machine %s",
		seen.node.Name, name(seen.machines[0]), printable.Few(names, most))
}

// sharedIdentity returns the providerID or the address that a node and a Machine have in common.
func sharedIdentity(node *corev1.Node, machine *machinev1beta1.Machine) string {
	if hasProviderID(node, machine) {
		return "providerID " + node.Spec.ProviderID
	}
	for _, ip := range internalIPs(node.Status.Addresses) {
		if slices.Contains(internalIPs(machine.Status.Addresses), ip) {
			return "internal IP " + ip
		}
	}
	return "nothing"
}

// hasProviderID reports whether a node has the providerID of a Machine.
func hasProviderID(node *corev1.Node, machine *machinev1beta1.Machine) bool {
	return node.Spec.ProviderID != "" && node.Spec.ProviderID == providerID(machine)
}

// wantedNode returns the node with the labels, annotations and taints of its Machine, and whether it has new taints; or
// nil if nothing changes. Fields that a Machine no longer has stay on the node: other clients may rely on them. A taint
// of the same key and effect is not changed, since taints have many writers.
func wantedNode(node *corev1.Node, machine *machinev1beta1.Machine) (wanted *corev1.Node, hasNewTaints bool) {
	missing := missingTaints(node.Spec.Taints, machine.Spec.Taints)
	wanted = node.DeepCopy()
	wanted.Labels = labels.Merge(node.Labels, machine.Spec.Labels)
	wanted.Annotations = labels.Merge(node.Annotations,
		labels.Merge(machine.Spec.Annotations, map[string]string{MachineAnnotation: name(machine)}))
	if len(missing) == 0 && maps.Equal(node.Labels, wanted.Labels) && maps.Equal(node.Annotations, wanted.Annotations) {
		return nil, false
	}
	wanted.Spec.Taints = append(wanted.Spec.Taints, missing...)
	return wanted, len(missing) > 0
}

func missingTaints(has, wanted []corev1.Taint) []corev1.Taint {
	var missing []corev1.Taint
	for _, taint := range wanted {
		isSame := func(other corev1.Taint) bool { return other.MatchTaint(&taint) }
		if !slices.ContainsFunc(has, isSame) && !slices.ContainsFunc(missing, isSame) {
			missing = append(missing, taint)
		}
	}
	return missing
}
