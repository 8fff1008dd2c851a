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
func (o *openshiftMachine) drainCondition() []Hold {
	drained := o.condition(machinev1beta1.MachineDrained)
	if drained.Message == "" {
		return nil
	}
	return []Hold{{Type: Pod, Message: drained.Message, Since: &drained.LastTransitionTime.Time}}
}

// infraHold returns the hold of infrastructure being deleted.
func (o *openshiftMachine) infraHold() []Hold {
	object, problem := o.infra.object, o.infraProblem()
	hold := Hold{Type: Infrastructure, Message: problem, Since: o.trueSince(machinev1beta1.MachineDrained)}
	switch {
	case object == nil && problem == "" && o.machine.Spec.ProviderID != nil:
		hold.Message = "its provider has to terminate " + *o.machine.Spec.ProviderID
	case object == nil && problem == "":
		hold.Message = "its provider has to terminate it"
	case object == nil:
	case object.GetDeletionTimestamp() == nil && problem == "":
		return controllerHold("delete " + o.infraID().String())
	default:
		hold.Object = o.infraID()
	}
	if object != nil && object.GetDeletionTimestamp() != nil {
		hold.Finalizers, hold.Since = object.GetFinalizers(), &object.GetDeletionTimestamp().Time
		hold.Message = cmp.Or(readyMessage(object), problem)
	}
	return []Hold{hold}
}

// startHolds returns the holds of a machine that does not run yet.
func (o *openshiftMachine) startHolds() []Hold {
	since := o.since()
	hold := Hold{Type: Infrastructure, Message: o.infraProblem(), Since: &since}
	switch object := o.infra.object; {
	case o.phase() == machinev1beta1.PhaseProvisioned:
		return []Hold{o.nodeHold(ptr.Deref(o.machine.Spec.ProviderID, ""), since)}
	case !o.infra.isKnown: // the infrastructure is outside of the cluster, or can't be read
		return []Hold{hold}
	case object == nil && hold.Message == "":
		return controllerHold("create " + o.infraID().String())
	case object != nil:
		hold.Message = cmp.Or(readyMessage(object), hold.Message)
	}
	hold.Object = o.infraID()
	return []Hold{hold}
}

// infraID identifies the infrastructure object.
func (o *openshiftMachine) infraID() *kinds.ID {
	return new(kinds.NewID(o.infra.kind.GroupKind(), o.machine.Namespace, o.machine.Name))
}

// infraProblem returns why the machine controller can't read or change the infrastructure.
func (o *openshiftMachine) infraProblem() string {
	exists := o.condition(machinev1beta1.InstanceExistsCondition)
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
func (o *openshiftMachine) remedy(h *Hold) []string {
	switch h.Type {
	case PreDrainHook, PreTerminateHook:
		patch := []any{
			patchOperation{"test", h.key + "/name", h.Name},
			patchOperation{Op: "remove", Path: h.key},
		}
		return h.hookRemedy(o.command("patch", " --type=json -p '"+quotedJSON(patch)+"'"))
	case Pod:
		return h.podRemedy(o.command("annotate", " "+deletion.ExcludeNodeDraining+"="))
	case ControlPlaneNode:
		return []string{
			"nodes of the control plane are drained one after the other; no action is needed, unless node " +
				h.Object.Name + " is cordoned for another reason:",
			"kubectl uncordon " + h.Object.Name,
		}
	case Infrastructure:
		return o.infraRemedy(h)
	case NodeNotReady:
		return o.set.nodeRemedy(h, o.machine.Name, o.command("delete", " --wait=false"))
	case Failure:
		return []string{"only its deletion helps; " + o.set.replacement(o.machine) + ":", o.command("delete", "")}
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
func (o *openshiftMachine) infraRemedy(h *Hold) []string {
	if h.Object == nil {
		if o.isDeleting() {
			return []string{"see the events below, and the log of the provider's machine controller"}
		}
		return nil
	}
	object := fmt.Sprintf("%s.%s %s -n %s", strings.ToLower(h.Object.Kind), h.Object.Group, h.Object.Name,
		h.Object.Namespace)
	if !o.isDeleting() || len(h.Finalizers) == 0 {
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
func (o *openshiftMachine) explain(now time.Time) *diagnosis.Explanation {
	m := o.overview()
	suffix := ""
	if o.nodeName() != "" && o.nodes.byName != nil && o.node() == nil {
		suffix = ", which does not exist"
	}
	if m.Stage != "" && ptr.Deref(o.machine.Status.Phase, "") != machinev1beta1.PhaseDeleting {
		suffix += "; the machine controller has not observed the deletion yet"
	}
	e := m.explanation(suffix, now)
	o.addStayingPods(e)
	o.addLateHooks(e, m.Stage)
	o.set.addReplacement(e, o.machine.Name)
	m.addLater(e)
	return e
}

// statusConditions returns the conditions of the machine in the type of Kubernetes.
func (o *openshiftMachine) statusConditions() []metav1.Condition {
	var conditions []metav1.Condition
	for _, c := range o.machine.Status.Conditions {
		conditions = append(conditions, metav1.Condition{
			Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			LastTransitionTime: c.LastTransitionTime,
		})
	}
	return conditions
}

// addStayingPods adds a message for each pod that stays until the node is deleted.
func (o *openshiftMachine) addStayingPods(e *diagnosis.Explanation) {
	if o.pods == nil {
		return
	}
	for _, pod := range o.pods.staying {
		e.Add(fmt.Sprintf("pod %s/%s was scheduled after its node was cordoned, and tolerates that (toleration %s): "+
			"it is deleted with the node", pod.Namespace, pod.Name, pod.Toleration),
			"no action is needed; to keep such pods off nodes that are drained, remove the toleration from their "+
				"workload")
	}
}

// addLateHooks adds a message for each hook whose stage is over: it holds nothing, though conditions show it.
func (o *openshiftMachine) addLateHooks(e *diagnosis.Explanation, stage deletion.Stage) {
	add := func(kind HoldType, reason string, condition machinev1beta1.ConditionType) {
		for _, hold := range o.hookHolds(kind, nil) {
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
