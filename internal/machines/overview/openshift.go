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
func (f *openshiftMachine) gather(ctx context.Context, g *gatherer) {
	if !f.isDeleting() {
		if phase := f.phase(); phase == machinev1beta1.PhaseProvisioning || phase == "Pending" {
			f.readInfrastructure(ctx, g)
		}
		return
	}
	if f.isReleased() {
		return
	}
	if f.nodes.unknown != "" && f.nodeName() != "" {
		f.unknown = append(f.unknown, f.nodes.unknown)
	}
	switch stage, reason := deletion.StageOpenShift(f.machine); {
	case stage == deletion.BeforeDrain, reason == deletion.DrainSkipped:
	case stage != deletion.Draining:
		f.readInfrastructure(ctx, g)
	case f.node() != nil && f.node().Spec.Unschedulable:
		f.readPods(ctx, g, f.node(), nil)
		f.pods.separateStaying()
	}
}

// readInfrastructure reads the infrastructure object.
func (f *openshiftMachine) readInfrastructure(ctx context.Context, g *gatherer) {
	if f.infra.kind.Kind == "" {
		return
	}
	resource, err := g.cluster.Find(ctx, f.infra.kind)
	if errors.Is(err, ErrNotServed) || err == nil && !resource.Namespaced { // it is outside of the cluster
		return
	}
	var object *unstructured.Unstructured
	if err == nil {
		object, err = g.cluster.In(resource, f.machine.Namespace).Get(ctx, f.machine.Name, metav1.GetOptions{})
	}
	switch {
	case err == nil:
		f.infra.isKnown, f.infra.object = true, object
	case apierrors.IsNotFound(err):
		f.infra.isKnown = true
	default:
		f.unknown = append(f.unknown, errorLine(typedread.RequestError("get "+f.infraID().String(), err)))
	}
}

// isReleased reports whether the machine has no finalizer of the machine controller.
func (f *openshiftMachine) isReleased() bool {
	return !slices.Contains(f.machine.Finalizers, machinev1beta1.MachineFinalizer)
}

// nodeName returns the name of the machine's node.
func (f *openshiftMachine) nodeName() string { return enqueue.NodeName(f.machine) }

// node returns the Node of the machine; nil if it does not exist, is not known, or another host has joined under its
// name.
func (f *openshiftMachine) node() *corev1.Node {
	node := f.nodes.byName[f.nodeName()]
	if node == nil || deletion.OwnershipOpenShift(node, f.machine) != deletion.OwnNode {
		return nil
	}
	return node
}

// condition returns a condition of the machine; an empty one if it has none.
func (f *openshiftMachine) condition(kind machinev1beta1.ConditionType) machinev1beta1.Condition {
	return conditions.Find(f.machine.Status.Conditions, kind)
}

// hasNode reports whether the controller still has to delete the node. The finalizers of a node being deleted
// don't hold the machine.
func (f *openshiftMachine) hasNode() bool {
	node := f.node()
	if node == nil {
		return f.nodeName() != "" && f.nodes.byName == nil
	}
	return node.DeletionTimestamp == nil
}

// infrastructure returns whether the infrastructure exists, and whether its deletion was requested. If it can't be
// read, a running deletion is assumed while the node exists: a provider does not report that it has begun the deletion.
func (f *openshiftMachine) infrastructure() (exists, isDeleting bool) {
	if object := f.infra.object; object != nil {
		return true, object.GetDeletionTimestamp() != nil
	}
	isRequested := f.condition(machinev1beta1.InstanceExistsCondition).Reason == deletion.InstanceTerminating
	wasNeverCreated := f.infra.kind.Kind == "" && len(f.machine.Status.Addresses) == 0
	if f.infra.isKnown || wasNeverCreated {
		return false, isRequested
	}
	return true, isRequested || len(f.machine.Spec.LifecycleHooks.PreTerminate) == 0
}

// trueSince returns when a condition became true, or when the machine was deleted, whichever is later.
func (f *openshiftMachine) trueSince(kind machinev1beta1.ConditionType) *time.Time {
	since := f.machine.DeletionTimestamp.Time
	if c := f.condition(kind); c.Status == corev1.ConditionTrue && c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	return &since
}

// overview returns the state of the machine.
func (f *openshiftMachine) overview() Machine {
	m := Machine{
		APIGroup: Kind.Group, Namespace: f.machine.Namespace, Name: f.machine.Name, UID: string(f.machine.UID),
		Node: f.nodeName(), Phase: f.phase(), Since: f.since(), Unknown: f.unknown,
		ProviderID: ptr.Deref(f.machine.Spec.ProviderID, ""),
	}
	switch {
	case f.isDeleting():
		m.Stage = f.stage()
		m.Holds = f.deletionHolds(m.Stage)
		if m.Stage == deletion.BeforeDrain || m.Stage == deletion.Draining {
			m.Later = f.hookHolds(PreTerminateHook, nil)
		}
	case m.Phase == machinev1beta1.PhaseFailed:
		m.Holds = []Hold{{Type: Failure, Message: f.failure()}}
	case m.Phase != machinev1beta1.PhaseRunning:
		m.Holds = f.startHolds()
	default:
		m.Holds = f.set.nodeHold(m.Name, m.Node, f.nodes.byName[m.Node])
	}
	for i := range m.Holds {
		m.Holds[i].remedy = f.remedy(&m.Holds[i])
	}
	return m
}

// phase returns the phase of the machine. Deleting is shown before its controller writes it.
func (f *openshiftMachine) phase() string {
	if f.isDeleting() {
		return machinev1beta1.PhaseDeleting
	}
	return cmp.Or(ptr.Deref(f.machine.Status.Phase, ""), "Pending")
}

// since returns when the phase began.
func (f *openshiftMachine) since() time.Time {
	created := f.machine.CreationTimestamp.Time
	exists, node := f.condition(machinev1beta1.InstanceExistsCondition), f.node()
	switch f.phase() {
	case machinev1beta1.PhaseDeleting:
		return f.machine.DeletionTimestamp.Time
	case machinev1beta1.PhaseFailed:
		if f.machine.Status.LastUpdated != nil {
			return f.machine.Status.LastUpdated.Time
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
func (f *openshiftMachine) failure() string {
	var parts []string
	if reason := ptr.Deref(f.machine.Status.ErrorReason, ""); reason != "" {
		parts = append(parts, string(reason))
	}
	if message := ptr.Deref(f.machine.Status.ErrorMessage, ""); message != "" {
		parts = append(parts, message)
	}
	return cmp.Or(strings.Join(parts, ": "), "no reason is reported")
}

// stage returns the stage of the deletion: by the machine's conditions, and after the drain by its infrastructure and
// its node, about which the conditions have less.
func (f *openshiftMachine) stage() deletion.Stage {
	if f.isReleased() {
		return deletion.Completed
	}
	stage, _ := deletion.StageOpenShift(f.machine)
	if stage == deletion.BeforeDrain || stage == deletion.Draining {
		return stage
	}
	switch exists, isDeleting := f.infrastructure(); {
	case len(f.machine.Spec.LifecycleHooks.PreTerminate) > 0 && !isDeleting:
		return deletion.BeforeTerminate
	case exists:
		return deletion.Terminating
	case f.hasNode():
		return deletion.RemovingNode
	}
	return deletion.Completed
}

// deletionHolds returns the holds of a deletion.
func (f *openshiftMachine) deletionHolds(stage deletion.Stage) []Hold {
	switch stage {
	case deletion.BeforeDrain:
		return f.hookHolds(PreDrainHook, &f.machine.DeletionTimestamp.Time)
	case deletion.Draining:
		return f.drainHolds()
	case deletion.BeforeTerminate:
		return f.hookHolds(PreTerminateHook, f.trueSince(machinev1beta1.MachineDrained))
	case deletion.Terminating:
		return f.infraHold()
	case deletion.RemovingNode:
		return controllerHold("delete node " + f.nodeName())
	}
	others := f.finalizerHolds(machinev1beta1.MachineFinalizer)
	if f.isReleased() {
		return others
	}
	return append(controllerHold("remove its finalizer"), others...)
}

// hookHolds returns the hooks of a type.
func (f *openshiftMachine) hookHolds(kind HoldType, since *time.Time) []Hold {
	field, hooks := "preDrain", f.machine.Spec.LifecycleHooks.PreDrain
	if kind == PreTerminateHook {
		field, hooks = "preTerminate", f.machine.Spec.LifecycleHooks.PreTerminate
	}
	var holds []Hold
	for i, hook := range hooks {
		key := fmt.Sprintf("/spec/lifecycleHooks/%s/%d", field, i)
		holds = append(holds, f.hookHold(kind, hook.Name, hook.Owner, key, since))
	}
	return holds
}

// drainHolds returns the holds of a drain.
func (f *openshiftMachine) drainHolds() []Hold {
	node, since := f.node(), f.trueSince(machinev1beta1.MachineDrainable)
	switch {
	case deletion.IsDrainSkipped(f.machine):
		return controllerHold("skip the drain")
	case f.nodes.byName == nil, f.pods != nil && f.pods.isUnknown:
		return f.drainCondition()
	case node == nil, f.pods != nil && len(f.pods.holding) == 0:
		return controllerHold("record that node " + f.nodeName() + " is drained")
	case f.pods != nil:
		return f.podHolds(since)
	}
	var holds []Hold
	for _, name := range f.nodes.otherCordoned(node) {
		holds = append(holds, Hold{
			Type: ControlPlaneNode, Object: new(kinds.NewID(kinds.Node, "", name)), Since: since,
		})
	}
	if len(holds) == 0 {
		return controllerHold("cordon node " + node.Name)
	}
	return holds
}
