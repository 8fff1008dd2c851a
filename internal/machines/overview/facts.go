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

// machineFacts are what judge judges.
type machineFacts struct {
	machine *machinev1beta1.Machine
	nodes   *nodeList
	pods    *nodePods // nil if nothing was asked of the node
	infra   infraFacts
	unknown []string
}

// nodePods is what was seen of the pods of a node that is drained.
type nodePods struct {
	left    []drain.HeldPod // that hold the drain
	staying []drain.HeldPod // that end with the node
	unknown string          // why they can't be listed
}

// setStaying sorts out the pods that tolerate the cordon, and came after it: they do not hold the drain.
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

// infraFacts is what was seen of the infrastructure of a machine.
type infraFacts struct {
	kind    schema.GroupVersionKind // that the machine asks for; its Kind is "" if it asks for none
	isKnown bool                    // its object could be looked for: the kind is served
	object  *unstructured.Unstructured
}

// isDeleting returns whether the machine is on its way out.
func (f *machineFacts) isDeleting() bool { return f.machine.DeletionTimestamp != nil }

// isReleased returns whether the machine controller is done with it, or never began.
func (f *machineFacts) isReleased() bool {
	return !slices.Contains(f.machine.Finalizers, machinev1beta1.MachineFinalizer)
}

// nodeName is the node of the machine.
func (f *machineFacts) nodeName() string {
	if f.machine.Status.NodeRef == nil {
		return ""
	}
	return f.machine.Status.NodeRef.Name
}

// node is the Node of the machine; nil if there is none, it is not known, or another host has joined under its name.
func (f *machineFacts) node() *corev1.Node {
	node := f.nodes.byName[f.nodeName()]
	if node == nil || deletion.OwnershipOpenShift(node, f.machine) != deletion.OwnNode {
		return nil
	}
	return node
}

// step is what the machine controller does next about the deletion.
func (f *machineFacts) step() deletion.DeletionStep { return deletion.OpenShift.Next(f.snapshot()) }

// snapshot is what the phases of a deletion are told.
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

// isDrained returns whether the drain is over.
func (f *machineFacts) isDrained() bool {
	drained := f.condition(machinev1beta1.MachineDrained)
	return drained != nil && drained.Status == corev1.ConditionTrue
}

// machineNode is what the phases are told of the node. Once it was asked to go, its finalizers don't hold the machine.
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

// infrastructure is what the phases are told of the infrastructure. One that can't be looked at is taken for
// one that goes, as long as the node is there: whether a provider has begun with it can't be seen.
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

// becameTrue is when a condition became true, if that was after the machine was deleted; else when that was.
func (f *machineFacts) becameTrue(of machinev1beta1.ConditionType) *time.Time {
	since := f.machine.DeletionTimestamp.Time
	if c := f.condition(of); c != nil && c.Status == corev1.ConditionTrue && c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	return &since
}

// templateKind is the kind of the infrastructure object that a machine asks for.
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
