package overview

import (
	"cmp"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// infraHold is the infrastructure that is being deleted.
func (f *machineFacts) infraHold() []MachineHold {
	object := f.infra.object
	switch {
	case object == nil:
		return []MachineHold{{Type: Infrastructure, Message: f.instance(), Since: f.becameTrue(machinev1beta1.MachineDrained)}}
	case object.GetDeletionTimestamp() == nil:
		if problem := f.problem(); problem != "" {
			return []MachineHold{{Type: Infrastructure, Object: f.infraID(), Message: problem, Since: f.becameTrue(machinev1beta1.MachineDrained)}}
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
	return &kinds.ID{Group: f.infra.kind.Group, Kind: f.infra.kind.Kind, Namespace: f.machine.Namespace, Name: f.machine.Name}
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
	return (&contract.ReferencedObject{Unstructured: object}).NotReady()
}
