package overview

import (
	"encoding/json"
	"slices"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
)

// machineFacts are the facts about a machine, for judge.
type machineFacts struct {
	machine *machinev1beta1.Machine
	nodes   *nodeList
	pods    *nodePods // nil if the pods of the node were not read
	infra   infraFacts
	unknown []string
}

// nodePods are the pods of a node that is being drained.
type nodePods struct {
	left    []drain.HeldPod // that hold the drain
	staying []drain.HeldPod // that end with the node
	unknown string          // why they can't be listed
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
func (f *machineFacts) nodeName() string {
	if f.machine.Status.NodeRef == nil {
		return ""
	}
	return f.machine.Status.NodeRef.Name
}

// node is the Node of the machine; nil if it does not exist, is not known, or another host has joined under its name.
func (f *machineFacts) node() *corev1.Node {
	node := f.nodes.byName[f.nodeName()]
	if node == nil || deletion.OwnershipOpenShift(node, f.machine) != deletion.OwnNode {
		return nil
	}
	return node
}

// step is the next step of the machine controller in the deletion.
func (f *machineFacts) step() deletion.DeletionStep { return deletion.OpenShift.Next(f.snapshot()) }

// snapshot returns the facts for the phases of a deletion.
func (f *machineFacts) snapshot() deletion.Snapshot {
	_, isExcluded := f.machine.Annotations[deletion.ExcludeNodeDraining]
	s := deletion.Snapshot{
		PreDrain: hooksOf(f.machine.Spec.LifecycleHooks.PreDrain), PreTerminate: hooksOf(f.machine.Spec.LifecycleHooks.PreTerminate),
		IsExcluded: isExcluded, Node: f.machineNode(), Infrastructure: f.infrastructure(),
	}
	s.Drain.IsDone = f.isDrained()
	if f.pods != nil {
		s.Drain.HasLooked, s.Drain.Problem = true, f.pods.unknown
		for _, pod := range f.pods.left {
			s.Drain.Left = append(s.Drain.Left, pod.Message)
		}
	}
	return s
}

func hooksOf(hooks []machinev1beta1.LifecycleHook) []deletion.DeletionHook {
	var list []deletion.DeletionHook
	for _, hook := range hooks {
		list = append(list, deletion.DeletionHook{Name: hook.Name, Owner: hook.Owner})
	}
	return list
}

// isDrained reports whether the drain is over.
func (f *machineFacts) isDrained() bool {
	drained := f.condition(machinev1beta1.MachineDrained)
	return drained != nil && drained.Status == corev1.ConditionTrue
}

// machineNode returns the facts about the node for the phases. The finalizers of a node that is being deleted don't hold the machine.
func (f *machineFacts) machineNode() deletion.MachineNode {
	seen := deletion.MachineNode{Name: f.nodeName()}
	node := f.node()
	if node == nil {
		seen.IsGone = f.nodes.byName != nil
		return seen
	}
	seen.IsGone = f.isDrained() && node.DeletionTimestamp != nil
	seen.IsCordoned, seen.IsControlPlane = node.Spec.Unschedulable, isControlPlane(node)
	for name, other := range f.nodes.byName {
		if name != seen.Name && isControlPlane(other) && other.Spec.Unschedulable {
			seen.OthersCordoned = append(seen.OthersCordoned, name)
		}
	}
	slices.Sort(seen.OthersCordoned)
	return seen
}

func isControlPlane(node *corev1.Node) bool {
	_, isControlPlane := node.Labels["node-role.kubernetes.io/control-plane"]
	_, isMaster := node.Labels["node-role.kubernetes.io/master"]
	return isControlPlane || isMaster
}

// infrastructure returns the facts about the infrastructure for the phases. If it can't be read, it is assumed to be in
// deletion while the node exists: whether a provider has begun the deletion is not known.
func (f *machineFacts) infrastructure() deletion.Infrastructure {
	if object := f.infra.object; object != nil {
		return deletion.Infrastructure{Exists: true, IsDeleting: object.GetDeletionTimestamp() != nil, Name: object.GetKind() + " " + object.GetName()}
	}
	exists := f.condition(machinev1beta1.InstanceExistsCondition)
	isRequested := exists != nil && exists.Reason == deletion.InstanceTerminating
	wasNeverMade := f.infra.kind.Kind == "" && len(f.machine.Status.Addresses) == 0
	if f.infra.isKnown || wasNeverMade {
		return deletion.Infrastructure{IsDeleting: isRequested}
	}
	return deletion.Infrastructure{Exists: true, IsDeleting: isRequested || len(f.machine.Spec.LifecycleHooks.PreTerminate) == 0}
}

// condition returns a condition of the machine; nil if it has none of that type.
func (f *machineFacts) condition(of machinev1beta1.ConditionType) *machinev1beta1.Condition {
	at := slices.IndexFunc(f.machine.Status.Conditions, func(c machinev1beta1.Condition) bool { return c.Type == of })
	if at < 0 {
		return nil
	}
	return &f.machine.Status.Conditions[at]
}

// becameTrue is when a condition became true, or the deletion of the machine if that is later.
func (f *machineFacts) becameTrue(of machinev1beta1.ConditionType) *time.Time {
	since := f.machine.DeletionTimestamp.Time
	if c := f.condition(of); c != nil && c.Status == corev1.ConditionTrue && c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	return &since
}

// templateKind is the kind of the infrastructure object in a machine's template.
func templateKind(m *machinev1beta1.Machine) schema.GroupVersionKind {
	if m.Spec.ProviderSpec.Value == nil {
		return schema.GroupVersionKind{}
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if json.Unmarshal(m.Spec.ProviderSpec.Value.Raw, &head) != nil {
		return schema.GroupVersionKind{}
	}
	return schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
}
