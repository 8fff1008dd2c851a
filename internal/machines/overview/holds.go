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
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// judge returns the state of a machine, and what holds it.
func judge(f *machineFacts) MachineOverview {
	m := MachineOverview{
		APIGroup: Kind.Group, Namespace: f.machine.Namespace, Name: f.machine.Name, UID: string(f.machine.UID),
		Node:  f.nodeName(),
		Phase: f.phase(), Since: f.since(), Unknown: f.unknown,
	}
	if f.machine.Spec.ProviderID != nil {
		m.ProviderID = *f.machine.Spec.ProviderID
	}
	switch {
	case f.isDeleting():
		m.Stage = f.stage()
		m.Holds = f.deletionHolds(m.Stage)
		if m.Stage == deletion.BeforeDrain || m.Stage == deletion.Draining {
			m.Later = f.hookHolds(PreTerminateHook, f.machine.Spec.LifecycleHooks.PreTerminate, nil)
		}
	case m.Phase == machinev1beta1.PhaseFailed:
		m.Holds = []MachineHold{{Type: Failure, Message: failureOf(f.machine)}}
	case m.Phase != machinev1beta1.PhaseRunning:
		m.Holds = f.startHolds()
	default:
		m.Holds = f.set.nodeHold(m.Name, m.Node, f.nodes.byName[m.Node])
	}
	return m
}

// phase is the phase of the machine. Deleting is shown before its controller writes it.
func (f *machineFacts) phase() string {
	switch reported := f.machine.Status.Phase; {
	case f.isDeleting():
		return machinev1beta1.PhaseDeleting
	case reported == nil || *reported == "":
		return "Pending"
	default:
		return *reported
	}
}

// since is when the phase began.
func (f *machineFacts) since() time.Time {
	made := f.machine.CreationTimestamp.Time
	exists, node := conditions.Find(f.machine.Status.Conditions, machinev1beta1.InstanceExistsCondition), f.node()
	switch f.phase() {
	case machinev1beta1.PhaseDeleting:
		return f.machine.DeletionTimestamp.Time
	case machinev1beta1.PhaseFailed:
		if f.machine.Status.LastUpdated != nil {
			return f.machine.Status.LastUpdated.Time
		}
	case machinev1beta1.PhaseProvisioned:
		if exists.Status == corev1.ConditionTrue && exists.LastTransitionTime.After(made) {
			return exists.LastTransitionTime.Time
		}
	case machinev1beta1.PhaseRunning:
		if node != nil && node.CreationTimestamp.After(made) {
			return node.CreationTimestamp.Time
		}
	}
	return made
}

// failureOf is why the machine has failed.
func failureOf(m *machinev1beta1.Machine) string {
	var parts []string
	if reason := m.Status.ErrorReason; reason != nil && *reason != "" {
		parts = append(parts, string(*reason))
	}
	if message := m.Status.ErrorMessage; message != nil && *message != "" {
		parts = append(parts, *message)
	}
	if len(parts) == 0 {
		return "it gives no reason"
	}
	return strings.Join(parts, ": ")
}

// stage is the stage of the deletion: as the machine's conditions record it, and after the drain by its infrastructure
// and its node, of which they record less.
func (f *machineFacts) stage() deletion.Stage {
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

// deletionHolds is what holds a deletion now.
func (f *machineFacts) deletionHolds(stage deletion.Stage) []MachineHold {
	hooks := f.machine.Spec.LifecycleHooks
	switch stage {
	case deletion.BeforeDrain:
		return f.hookHolds(PreDrainHook, hooks.PreDrain, &f.machine.DeletionTimestamp.Time)
	case deletion.Draining:
		return f.drainHolds()
	case deletion.BeforeTerminate:
		return f.hookHolds(PreTerminateHook, hooks.PreTerminate, f.becameTrue(machinev1beta1.MachineDrained))
	case deletion.Terminating:
		return f.infraHold()
	case deletion.RemovingNode:
		return controllerHold("delete node " + f.nodeName())
	}
	others := finalizersOf(f.machine, machinev1beta1.MachineFinalizer)
	if f.isReleased() {
		return others
	}
	return append(controllerHold("remove its finalizer"), others...)
}

// hookHolds are the hooks of a list.
func (f *machineFacts) hookHolds(of MachineHoldType, hooks []machinev1beta1.LifecycleHook,
	since *time.Time) []MachineHold {
	list := map[MachineHoldType]string{PreDrainHook: "preDrain", PreTerminateHook: "preTerminate"}[of]
	var holds []MachineHold
	for i, hook := range hooks {
		holds = append(holds, MachineHold{
			Type: of, Name: hook.Name, Owner: hook.Owner, Message: hookMessage(f.machine, of, hook.Name), Since: since,
			key: fmt.Sprintf("/spec/lifecycleHooks/%s/%d", list, i),
		})
	}
	return holds
}

// hookMessage is the message that the controller of a hook reports, if it uses package machinehook.
func hookMessage(m metav1.Object, of MachineHoldType, name string) string {
	stage := deletion.BeforeDrain
	if of == PreTerminateHook {
		stage = deletion.BeforeTerminate
	}
	return m.GetAnnotations()[deletion.HookStatusAnnotation(stage, name)]
}

// drainHolds is what holds a drain.
func (f *machineFacts) drainHolds() []MachineHold {
	node := f.node()
	switch {
	case deletion.IsDrainSkipped(f.machine):
		return controllerHold("skip the drain")
	case f.nodes.byName == nil, f.pods != nil && f.pods.isUnknown:
		return f.drainCondition()
	case node == nil, f.pods != nil && len(f.pods.left) == 0:
		return controllerHold("record that node " + f.nodeName() + " is drained")
	case f.pods != nil:
		return podHolds(f.pods.left, f.becameTrue(machinev1beta1.MachineDrainable))
	}
	var holds []MachineHold
	for _, name := range f.nodes.othersCordoned(node) {
		holds = append(holds, MachineHold{
			Type:   ControlPlaneNode,
			Object: new(kinds.NewID(kinds.Node, "", name)),
			Since:  f.becameTrue(machinev1beta1.MachineDrainable),
		})
	}
	if len(holds) == 0 {
		return controllerHold("cordon node " + f.nodeName())
	}
	return holds
}

// drainCondition is the message of the machine about its drain, if the pods can't be listed.
func (f *machineFacts) drainCondition() []MachineHold {
	drained := conditions.Find(f.machine.Status.Conditions, machinev1beta1.MachineDrained)
	if drained.Message == "" {
		return nil
	}
	return []MachineHold{{Type: Pod, Message: drained.Message, Since: &drained.LastTransitionTime.Time}}
}

// weight orders pods: stuck pods first.
var weight = map[drain.PodHold]int{
	drain.Budget: 0, drain.Refused: 1, drain.Finalizers: 2, drain.Ending: 3, drain.ToBeEvicted: 4,
	drain.Completion: 5, drain.Later: 6, drain.CompletionLater: 7,
}

// podHolds returns a hold for each remaining pod.
func podHolds(pods []drain.HeldPod, since *time.Time) []MachineHold {
	left := slices.SortedFunc(slices.Values(pods), func(a, b drain.HeldPod) int {
		return cmp.Or(cmp.Compare(weight[a.Hold], weight[b.Hold]), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	var holds []MachineHold
	for _, pod := range left {
		holds = append(holds, MachineHold{
			Type: Pod, Name: string(pod.Hold), Object: new(kinds.NewID(kinds.Pod, pod.Namespace, pod.Name)),
			Budgets: pod.Budgets, Toleration: pod.Toleration, Message: pod.Message, Since: since,
		})
	}
	return holds
}

// controllerHold is an action that the machine controller has still to do.
func controllerHold(what string) []MachineHold {
	return []MachineHold{{Type: Controller, Message: what}}
}

// finalizersOf are the finalizers of other controllers.
func finalizersOf(m metav1.Object, own string) []MachineHold {
	var holds []MachineHold
	for _, finalizer := range m.GetFinalizers() {
		if finalizer != own {
			holds = append(holds, MachineHold{Type: Finalizer, Name: finalizer, Since: &m.GetDeletionTimestamp().Time})
		}
	}
	return holds
}

// infraHold is the infrastructure that is being deleted.
func (f *machineFacts) infraHold() []MachineHold {
	object := f.infra.object
	switch {
	case object == nil:
		return []MachineHold{{
			Type:    Infrastructure,
			Message: f.instance(),
			Since:   f.becameTrue(machinev1beta1.MachineDrained),
		}}
	case object.GetDeletionTimestamp() == nil:
		if problem := f.problem(); problem != "" {
			return []MachineHold{{
				Type:    Infrastructure,
				Object:  f.infraID(),
				Message: problem,
				Since:   f.becameTrue(machinev1beta1.MachineDrained),
			}}
		}
		return controllerHold("delete " + f.infraID().String())
	}
	return []MachineHold{{
		Type: Infrastructure, Object: f.infraID(), Finalizers: object.GetFinalizers(),
		Message: cmp.Or(notReady(object), f.problem()), Since: &object.GetDeletionTimestamp().Time,
	}}
}

// startHolds is what a machine that does not run yet waits for.
func (f *machineFacts) startHolds() []MachineHold {
	since := f.since()
	isHeld := f.infra.object != nil || f.problem() != ""
	switch {
	case f.phase() == machinev1beta1.PhaseProvisioned:
		return []MachineHold{f.nodes.hold(f.machine, Kind.Group, ptr.Deref(f.machine.Spec.ProviderID, ""), since)}
	case !f.infra.isKnown: // it is no object of the cluster, or can't be read
		return []MachineHold{{Type: Infrastructure, Message: f.problem(), Since: &since}}
	case !isHeld:
		return controllerHold("make " + f.infraID().String())
	}
	hold := MachineHold{Type: Infrastructure, Object: f.infraID(), Message: f.problem(), Since: &since}
	if f.infra.object != nil {
		hold.Message = cmp.Or(notReady(f.infra.object), hold.Message)
	}
	return []MachineHold{hold}
}

// infraID identifies the infrastructure object.
func (f *machineFacts) infraID() *kinds.ID {
	return new(kinds.NewID(f.infra.kind.GroupKind(), f.machine.Namespace, f.machine.Name))
}

// instance names infrastructure that is no object of the cluster.
func (f *machineFacts) instance() string {
	switch problem := f.problem(); {
	case problem != "":
		return problem
	case f.machine.Spec.ProviderID != nil:
		return "its provider has to terminate " + *f.machine.Spec.ProviderID
	default:
		return "its provider has to terminate it"
	}
}

// problem is why the machine controller can't read or change the infrastructure.
func (f *machineFacts) problem() string {
	exists := conditions.Find(f.machine.Status.Conditions, machinev1beta1.InstanceExistsCondition)
	if exists.Status != corev1.ConditionUnknown && exists.Reason != deletion.ErrorDeleting {
		return ""
	}
	return exists.Message
}

// notReady is the message of the condition Ready of an infrastructure object while it is not true.
func notReady(object *unstructured.Unstructured) string {
	return (&contract.Object{Unstructured: object}).NotReady()
}
