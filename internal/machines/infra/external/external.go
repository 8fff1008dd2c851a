// Package external is infrastructure that a person or a script provides: the controller of ExternalMachines reports the
// reason for a wait in the condition Ready and in events, and removes the finalizer of an object being deleted when
// spec.terminated is true.
//
// The controller needs the rights: externalmachines get, list, watch, patch; externalmachines/status patch; events of
// events.k8s.io create, patch.
//
// Start with SetupWithManager.
package external

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/patch"
)

// Finalizer keeps an ExternalMachine until its machine was terminated.
const Finalizer = "infrastructure.runlevel.dev/externalmachine"

// A reconciler is the controller of ExternalMachines.
type reconciler struct {
	Client client.Client
	Events events.EventRecorder
}

// concurrency limits how many machines are reconciled at once.
const concurrency = 10

// SetupWithManager adds the controller to a manager.
func SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ExternalMachine{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(&reconciler{Client: mgr.GetClient(), Events: mgr.GetEventRecorder("externalmachine")})
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	machine := &v1alpha1.ExternalMachine{}
	if err := r.Client.Get(ctx, request.NamespacedName, machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := machine.DeepCopy()
	switch {
	case machine.DeletionTimestamp == nil && controllerutil.AddFinalizer(machine, Finalizer),
		machine.DeletionTimestamp != nil && machine.Spec.Terminated &&
			controllerutil.RemoveFinalizer(machine, Finalizer):
		err := patch.WithLock(ctx, r.Client, machine, before)
		if machine.DeletionTimestamp != nil || err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		before = machine.DeepCopy()
	case machine.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(machine, Finalizer):
		return ctrl.Result{}, nil
	}
	hasChanged := setStatus(machine)
	if equality.Semantic.DeepEqual(before.Status, machine.Status) {
		return ctrl.Result{}, nil
	}
	if err := patch.StatusWithLock(ctx, r.Client, machine, before); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if hasChanged {
		ready := meta.FindStatusCondition(machine.Status.Conditions, "Ready")
		r.Events.Eventf(machine, nil, corev1.EventTypeNormal, ready.Reason, "Provide", "%s", ready.Message)
	}
	return ctrl.Result{}, nil
}

// setStatus sets the status of a machine, and reports whether the condition Ready has changed.
func setStatus(machine *v1alpha1.ExternalMachine) bool {
	status := &machine.Status
	status.Addresses, status.FailureDomain = machine.Spec.Addresses, machine.Spec.FailureDomain
	status.Initialization.Provisioned = status.Initialization.Provisioned || machine.Spec.ProviderID != ""
	return meta.SetStatusCondition(&status.Conditions, ready(machine))
}

// ready returns the condition Ready of a machine, with the reason for a wait.
func ready(machine *v1alpha1.ExternalMachine) metav1.Condition {
	const patch = "kubectl patch externalmachine -n %s %s --type=merge -p '%s'"
	condition := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, ObservedGeneration: machine.Generation}
	switch {
	case machine.DeletionTimestamp != nil:
		condition.Reason = "WaitingForTermination"
		condition.Message = "waiting for spec.terminated: end the machine, then " +
			fmt.Sprintf(patch, machine.Namespace, machine.Name, `{"spec":{"terminated":true}}`)
	case machine.Spec.ProviderID == "":
		condition.Reason = "WaitingForProviderID"
		condition.Message = "waiting for spec.providerID: start a machine whose kubelet has a --provider-id, then " +
			fmt.Sprintf(patch, machine.Namespace, machine.Name, `{"spec":{"providerID":"…"}}`)
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, "Provided"
		condition.Message = "the machine runs as " + machine.Spec.ProviderID
	}
	return condition
}
