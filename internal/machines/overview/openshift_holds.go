package overview

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// drainCondition returns the message of the machine about its drain, if the pods can't be listed.
func (f *openshiftMachine) drainCondition() []Hold {
	drained := f.condition(machinev1beta1.MachineDrained)
	if drained.Message == "" {
		return nil
	}
	return []Hold{{Type: Pod, Message: drained.Message, Since: &drained.LastTransitionTime.Time}}
}

// infraHold returns the hold of infrastructure being deleted.
func (f *openshiftMachine) infraHold() []Hold {
	object, problem := f.infra.object, f.infraProblem()
	hold := Hold{Type: Infrastructure, Message: problem, Since: f.trueSince(machinev1beta1.MachineDrained)}
	switch {
	case object == nil && problem == "" && f.machine.Spec.ProviderID != nil:
		hold.Message = "its provider has to terminate " + *f.machine.Spec.ProviderID
	case object == nil && problem == "":
		hold.Message = "its provider has to terminate it"
	case object == nil:
	case object.GetDeletionTimestamp() == nil && problem == "":
		return controllerHold("delete " + f.infraID().String())
	default:
		hold.Object = f.infraID()
	}
	if object != nil && object.GetDeletionTimestamp() != nil {
		hold.Finalizers, hold.Since = object.GetFinalizers(), &object.GetDeletionTimestamp().Time
		hold.Message = cmp.Or(readyMessage(object), problem)
	}
	return []Hold{hold}
}

// startHolds returns the holds of a machine that does not run yet.
func (f *openshiftMachine) startHolds() []Hold {
	since := f.since()
	hold := Hold{Type: Infrastructure, Message: f.infraProblem(), Since: &since}
	switch object := f.infra.object; {
	case f.phase() == machinev1beta1.PhaseProvisioned:
		return []Hold{f.nodeHold(ptr.Deref(f.machine.Spec.ProviderID, ""), since)}
	case !f.infra.isKnown: // the infrastructure is outside of the cluster, or can't be read
		return []Hold{hold}
	case object == nil && hold.Message == "":
		return controllerHold("create " + f.infraID().String())
	case object != nil:
		hold.Message = cmp.Or(readyMessage(object), hold.Message)
	}
	hold.Object = f.infraID()
	return []Hold{hold}
}

// infraID identifies the infrastructure object.
func (f *openshiftMachine) infraID() *kinds.ID {
	return new(kinds.NewID(f.infra.kind.GroupKind(), f.machine.Namespace, f.machine.Name))
}

// infraProblem returns why the machine controller can't read or change the infrastructure.
func (f *openshiftMachine) infraProblem() string {
	exists := f.condition(machinev1beta1.InstanceExistsCondition)
	if exists.Status != corev1.ConditionUnknown && exists.Reason != deletion.ErrorDeleting {
		return ""
	}
	return exists.Message
}

// readyMessage returns the message of the condition Ready of an infrastructure object while it is not true.
func readyMessage(object *unstructured.Unstructured) string {
	return (&contract.Object{Unstructured: object}).NotReady()
}

// remedy returns the remedy of a hold for an administrator.
func (f *openshiftMachine) remedy(h *Hold) []string {
	switch h.Type {
	case PreDrainHook, PreTerminateHook:
		patch := []any{
			patchOperation{"test", h.key + "/name", h.Name},
			patchOperation{Op: "remove", Path: h.key},
		}
		return h.hookRemedy(f.command("patch", " --type=json -p '"+quotedJSON(patch)+"'"))
	case Pod:
		return h.podRemedy(f.command("annotate", " "+deletion.ExcludeNodeDraining+"="))
	case ControlPlaneNode:
		return []string{
			"nodes of the control plane are drained one after the other; no action is needed, unless node " +
				h.Object.Name + " is cordoned for another reason:",
			"kubectl uncordon " + h.Object.Name,
		}
	case Infrastructure:
		return f.infraRemedy(h)
	case NodeNotReady:
		return f.set.nodeRemedy(h, f.machine.Name, f.command("delete", " --wait=false"))
	case Failure:
		return []string{"only its deletion helps; " + f.set.replacement(f.machine) + ":", f.command("delete", "")}
	}
	return h.commonRemedy()
}

// A patchOperation is an operation of a JSON patch.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
}

// quotedJSON returns a value as JSON, for use within a shell's single quotes.
func quotedJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil { // not possible for these types
		return ""
	}
	return strings.ReplaceAll(string(text), "'", `\u0027`)
}

// infraRemedy returns the remedy for a problem of infrastructure.
func (f *openshiftMachine) infraRemedy(h *Hold) []string {
	if h.Object == nil {
		if f.isDeleting() {
			return []string{"see the events below, and the log of the provider's machine controller"}
		}
		return nil
	}
	object := fmt.Sprintf("%s.%s %s -n %s", strings.ToLower(h.Object.Kind), h.Object.Group, h.Object.Name,
		h.Object.Namespace)
	if !f.isDeleting() || len(h.Finalizers) == 0 {
		return []string{"kubectl describe " + object}
	}
	return []string{
		"its controller removes its finalizers once the machine is terminated:",
		"kubectl describe " + object,
		"if that controller was uninstalled, terminate the machine by hand, and then remove the finalizers; a " +
			"machine " +
			"that still runs would be lost:",
		"kubectl patch " + object + ` --type=merge -p '{"metadata":{"finalizers":null}}'`,
	}
}

// explain returns the explanation of the machine, without its conditions and events.
func (f *openshiftMachine) explain(now time.Time) *diagnosis.Explanation {
	m := f.overview()
	suffix := ""
	if f.nodeName() != "" && f.nodes.byName != nil && f.node() == nil {
		suffix = ", which does not exist"
	}
	if m.Stage != "" && ptr.Deref(f.machine.Status.Phase, "") != machinev1beta1.PhaseDeleting {
		suffix += "; the machine controller has not observed the deletion yet"
	}
	e := m.explanation(suffix, now)
	f.addStayingPods(e)
	f.addLateHooks(e, m.Stage)
	f.set.addReplacement(e, f.machine.Name)
	m.addLater(e)
	return e
}

// statusConditions returns the conditions of the machine in the type of Kubernetes.
func (f *openshiftMachine) statusConditions() []metav1.Condition {
	var conditions []metav1.Condition
	for _, c := range f.machine.Status.Conditions {
		conditions = append(conditions, metav1.Condition{
			Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			LastTransitionTime: c.LastTransitionTime,
		})
	}
	return conditions
}

// addStayingPods adds a message for each pod that stays until the node is deleted.
func (f *openshiftMachine) addStayingPods(e *diagnosis.Explanation) {
	if f.pods == nil {
		return
	}
	for _, pod := range f.pods.staying {
		e.Add(fmt.Sprintf("pod %s/%s was scheduled after its node was cordoned, and tolerates that (toleration %s): "+
			"it is deleted with the node", pod.Namespace, pod.Name, pod.Toleration),
			"no action is needed; to keep such pods off nodes that are drained, remove the toleration from their "+
				"workload")
	}
}

// addLateHooks adds a message for each hook whose stage is over: it holds nothing, though conditions show it.
func (f *openshiftMachine) addLateHooks(e *diagnosis.Explanation, stage deletion.Stage) {
	add := func(kind HoldType, reason string, condition machinev1beta1.ConditionType) {
		for _, hold := range f.hookHolds(kind, nil) {
			e.Add(fmt.Sprintf("%s was added too late, and has no effect: %s", hold.title(), reason),
				fmt.Sprintf("the condition %s stays False while the hook exists, and no stage reads it", condition))
		}
	}
	switch stage {
	case deletion.BeforeTerminate, deletion.Terminating, deletion.RemovingNode, deletion.Completed:
		add(PreDrainHook, "the drain is over", machinev1beta1.MachineDrainable)
	}
	switch stage {
	case deletion.Terminating, deletion.RemovingNode, deletion.Completed:
		add(PreTerminateHook, "the deletion of its infrastructure was requested", machinev1beta1.MachineTerminable)
	}
}
