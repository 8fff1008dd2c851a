package overview

import (
	"slices"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/infra"
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

// hasNode reports whether the node is still to be deleted. The finalizers of a node that is being deleted don't hold the machine.
func (f *machineFacts) hasNode() bool {
	node := f.node()
	if node == nil {
		return f.nodeName() != "" && f.nodes.byName == nil
	}
	return node.DeletionTimestamp == nil
}

// infrastructure returns whether the infrastructure exists, and whether its deletion was requested. If it can't be read, it is
// assumed to be in deletion while the node exists: whether a provider has begun the deletion is not known.
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
	if c := conditions.Find(f.machine.Status.Conditions, of); c.Status == corev1.ConditionTrue && c.LastTransitionTime.After(since) {
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
