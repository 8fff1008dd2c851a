package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/machines/typedread"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// This file is about Machines of OpenShift's API. Their conditions record less than those of Cluster API: the holds are
// read from the objects that a machine waits for.

// atOnce limits how many machines are gathered at a time.
const atOnce = 10

// openshiftMachine contains the facts about a machine of OpenShift's API.
type openshiftMachine struct {
	machineFacts
	machine *machinev1beta1.Machine
	infra   infraFacts
	set     *setFacts // the set that replaces the machine; nil if there is none, or it was not read
}

// infraFacts are the facts about the infrastructure of a machine.
type infraFacts struct {
	kind    schema.GroupVersionKind // kind of the machine's template; empty if the machine has none
	isKnown bool                    // the object was read, or does not exist
	object  *unstructured.Unstructured
}

func newOpenshiftMachine(m *machinev1beta1.Machine, nodes *nodeList) *openshiftMachine {
	f := &openshiftMachine{machine: m, machineFacts: machineFacts{group: Kind.Group, object: m, nodes: nodes}}
	if template, _ := infra.ParseTemplate(m.Spec.ProviderSpec.Value); template != nil {
		f.infra.kind = template.GroupVersionKind()
	}
	return f
}

// openshiftMachines lists machines with the objects that they wait for.
func (g *gatherer) openshiftMachines(ctx context.Context, q Query) ([]*openshiftMachine, error) {
	machines, err := listObjects[machinev1beta1.Machine](ctx, g, Kind, q)
	return g.gatherMachines(ctx, machines), err
}

// gatherMachines reads the objects that machines wait for.
func (g *gatherer) gatherMachines(ctx context.Context, machines []*machinev1beta1.Machine) []*openshiftMachine {
	facts := make([]*openshiftMachine, len(machines))
	var reads errgroup.Group
	reads.SetLimit(atOnce)
	for i, m := range machines {
		f := newOpenshiftMachine(m, g.listNodes(ctx))
		facts[i] = f
		reads.Go(func() error {
			f.gather(ctx, g)
			return nil
		})
	}
	_ = reads.Wait() // failed reads are in the facts
	return facts
}

// gather reads the objects that the machine waits for.
func (o *openshiftMachine) gather(ctx context.Context, g *gatherer) {
	if !o.isDeleting() {
		if phase := o.phase(); phase == machinev1beta1.PhaseProvisioning || phase == "Pending" {
			o.readInfrastructure(ctx, g)
		}
		return
	}
	if o.isReleased() {
		return
	}
	if o.nodes.unknown != "" && o.nodeName() != "" {
		o.unknown = append(o.unknown, o.nodes.unknown)
	}
	switch stage, reason := deletion.StageOpenShift(o.machine); {
	case stage == deletion.BeforeDrain, reason == deletion.DrainSkipped:
	case stage != deletion.Draining:
		o.readInfrastructure(ctx, g)
	case o.node() != nil && o.node().Spec.Unschedulable:
		o.readPods(ctx, g, o.node(), nil)
		o.pods.separateStaying()
	}
}

// readInfrastructure reads the infrastructure object.
func (o *openshiftMachine) readInfrastructure(ctx context.Context, g *gatherer) {
	if o.infra.kind.Kind == "" {
		return
	}
	resource, err := g.cluster.Find(ctx, o.infra.kind)
	if errors.Is(err, ErrNotServed) || err == nil && !resource.Namespaced { // it is outside of the cluster
		return
	}
	var object *unstructured.Unstructured
	if err == nil {
		object, err = g.cluster.In(resource, o.machine.Namespace).Get(ctx, o.machine.Name, metav1.GetOptions{})
	}
	switch {
	case err == nil:
		o.infra.isKnown, o.infra.object = true, object
	case apierrors.IsNotFound(err):
		o.infra.isKnown = true
	default:
		o.unknown = append(o.unknown, errorLine(typedread.RequestError("get "+o.infraID().String(), err)))
	}
}

// isReleased reports whether the machine has no finalizer of the machine controller.
func (o *openshiftMachine) isReleased() bool {
	return !slices.Contains(o.machine.Finalizers, machinev1beta1.MachineFinalizer)
}

// nodeName returns the name of the machine's node.
func (o *openshiftMachine) nodeName() string { return enqueue.NodeName(o.machine) }

// node returns the Node of the machine; nil if it does not exist, is not known, or another host has joined under its
// name.
func (o *openshiftMachine) node() *corev1.Node {
	node := o.nodes.byName[o.nodeName()]
	if node == nil || deletion.OwnershipOpenShift(node, o.machine) != deletion.OwnNode {
		return nil
	}
	return node
}

// condition returns a condition of the machine; an empty one if it has none.
func (o *openshiftMachine) condition(kind machinev1beta1.ConditionType) machinev1beta1.Condition {
	return conditions.Find(o.machine.Status.Conditions, kind)
}

// hasNode reports whether the controller still has to delete the node. The finalizers of a node being deleted
// don't hold the machine.
func (o *openshiftMachine) hasNode() bool {
	node := o.node()
	if node == nil {
		return o.nodeName() != "" && o.nodes.byName == nil
	}
	return node.DeletionTimestamp == nil
}

// infrastructure returns whether the infrastructure exists, and whether its deletion was requested. If it can't be
// read, a running deletion is assumed while the node exists: a provider does not report that it has begun the deletion.
func (o *openshiftMachine) infrastructure() (exists, isDeleting bool) {
	if object := o.infra.object; object != nil {
		return true, object.GetDeletionTimestamp() != nil
	}
	isRequested := o.condition(machinev1beta1.InstanceExistsCondition).Reason == deletion.InstanceTerminating
	wasNeverCreated := o.infra.kind.Kind == "" && len(o.machine.Status.Addresses) == 0
	if o.infra.isKnown || wasNeverCreated {
		return false, isRequested
	}
	return true, isRequested || len(o.machine.Spec.LifecycleHooks.PreTerminate) == 0
}

// trueSince returns when a condition became true, or when the machine was deleted, whichever is later.
func (o *openshiftMachine) trueSince(kind machinev1beta1.ConditionType) *time.Time {
	since := o.machine.DeletionTimestamp.Time
	if c := o.condition(kind); c.Status == corev1.ConditionTrue && c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	return &since
}

// overview returns the state of the machine.
func (o *openshiftMachine) overview() Machine {
	m := Machine{
		APIGroup: Kind.Group, Namespace: o.machine.Namespace, Name: o.machine.Name, UID: string(o.machine.UID),
		Node: o.nodeName(), Phase: o.phase(), Since: o.since(), Unknown: o.unknown,
		ProviderID: ptr.Deref(o.machine.Spec.ProviderID, ""),
	}
	switch {
	case o.isDeleting():
		m.Stage = o.stage()
		m.Holds = o.deletionHolds(m.Stage)
		if m.Stage == deletion.BeforeDrain || m.Stage == deletion.Draining {
			m.Later = o.hookHolds(PreTerminateHook, nil)
		}
	case m.Phase == machinev1beta1.PhaseFailed:
		m.Holds = []Hold{{Type: Failure, Message: o.failure()}}
	case m.Phase != machinev1beta1.PhaseRunning:
		m.Holds = o.startHolds()
	default:
		m.Holds = o.set.nodeHold(m.Name, m.Node, o.nodes.byName[m.Node])
	}
	for i := range m.Holds {
		m.Holds[i].remedy = o.remedy(&m.Holds[i])
	}
	return m
}

// phase returns the phase of the machine. Deleting is shown before its controller writes it.
func (o *openshiftMachine) phase() string {
	if o.isDeleting() {
		return machinev1beta1.PhaseDeleting
	}
	return cmp.Or(ptr.Deref(o.machine.Status.Phase, ""), "Pending")
}

// since returns when the phase began.
func (o *openshiftMachine) since() time.Time {
	created := o.machine.CreationTimestamp.Time
	exists, node := o.condition(machinev1beta1.InstanceExistsCondition), o.node()
	switch o.phase() {
	case machinev1beta1.PhaseDeleting:
		return o.machine.DeletionTimestamp.Time
	case machinev1beta1.PhaseFailed:
		if o.machine.Status.LastUpdated != nil {
			return o.machine.Status.LastUpdated.Time
		}
	case machinev1beta1.PhaseProvisioned:
		if exists.Status == corev1.ConditionTrue && exists.LastTransitionTime.After(created) {
			return exists.LastTransitionTime.Time
		}
	case machinev1beta1.PhaseRunning:
		if node != nil && node.CreationTimestamp.After(created) {
			return node.CreationTimestamp.Time
		}
	}
	return created
}

// failure returns why the machine has failed.
func (o *openshiftMachine) failure() string {
	var parts []string
	if reason := ptr.Deref(o.machine.Status.ErrorReason, ""); reason != "" {
		parts = append(parts, string(reason))
	}
	if message := ptr.Deref(o.machine.Status.ErrorMessage, ""); message != "" {
		parts = append(parts, message)
	}
	return cmp.Or(strings.Join(parts, ": "), "no reason is reported")
}

// stage returns the stage of the deletion: by the machine's conditions, and after the drain by its infrastructure and
// its node, about which the conditions have less.
func (o *openshiftMachine) stage() deletion.Stage {
	if o.isReleased() {
		return deletion.Completed
	}
	stage, _ := deletion.StageOpenShift(o.machine)
	if stage == deletion.BeforeDrain || stage == deletion.Draining {
		return stage
	}
	switch exists, isDeleting := o.infrastructure(); {
	case len(o.machine.Spec.LifecycleHooks.PreTerminate) > 0 && !isDeleting:
		return deletion.BeforeTerminate
	case exists:
		return deletion.Terminating
	case o.hasNode():
		return deletion.RemovingNode
	}
	return deletion.Completed
}

// deletionHolds returns the holds of a deletion.
func (o *openshiftMachine) deletionHolds(stage deletion.Stage) []Hold {
	switch stage {
	case deletion.BeforeDrain:
		return o.hookHolds(PreDrainHook, &o.machine.DeletionTimestamp.Time)
	case deletion.Draining:
		return o.drainHolds()
	case deletion.BeforeTerminate:
		return o.hookHolds(PreTerminateHook, o.trueSince(machinev1beta1.MachineDrained))
	case deletion.Terminating:
		return o.infraHold()
	case deletion.RemovingNode:
		return controllerHold("delete node " + o.nodeName())
	}
	others := o.finalizerHolds(machinev1beta1.MachineFinalizer)
	if o.isReleased() {
		return others
	}
	return append(controllerHold("remove its finalizer"), others...)
}

// hookHolds returns the hooks of a type.
func (o *openshiftMachine) hookHolds(kind HoldType, since *time.Time) []Hold {
	field, hooks := "preDrain", o.machine.Spec.LifecycleHooks.PreDrain
	if kind == PreTerminateHook {
		field, hooks = "preTerminate", o.machine.Spec.LifecycleHooks.PreTerminate
	}
	var holds []Hold
	for i, hook := range hooks {
		key := fmt.Sprintf("/spec/lifecycleHooks/%s/%d", field, i)
		holds = append(holds, o.hookHold(kind, hook.Name, hook.Owner, key, since))
	}
	return holds
}

// drainHolds returns the holds of a drain.
func (o *openshiftMachine) drainHolds() []Hold {
	node, since := o.node(), o.trueSince(machinev1beta1.MachineDrainable)
	switch {
	case deletion.IsDrainSkipped(o.machine):
		return controllerHold("skip the drain")
	case o.nodes.byName == nil, o.pods != nil && o.pods.isUnknown:
		return o.drainCondition()
	case node == nil, o.pods != nil && len(o.pods.holding) == 0:
		return controllerHold("record that node " + o.nodeName() + " is drained")
	case o.pods != nil:
		return o.podHolds(since)
	}
	var holds []Hold
	for _, name := range o.nodes.otherCordoned(node) {
		holds = append(holds, Hold{
			Type: ControlPlaneNode, Object: new(kinds.NewID(kinds.Node, "", name)), Since: since,
		})
	}
	if len(holds) == 0 {
		return controllerHold("cordon node " + node.Name)
	}
	return holds
}
