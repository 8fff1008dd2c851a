// Package kwok is infrastructure without machines behind it: the controller of KwokMachines creates a Node for each
// one, which kwok keeps alive if kwok runs. Starts and ends can be slow, and can fail (v1alpha1.KwokMachineSpec).
//
// A Node is created only once: if it is deleted, its simulated machine has ended. It is kept when a KwokMachine of a
// machine ends, as a cloud's would be, for the controller of machines to delete. The Node of a KwokMachine without
// a machine, or one that was not linked to its machine yet, is deleted here.
//
// The controller of KwokConfigs creates a Secret for each one, so that Cluster API's Machines can have bootstrap data
// though nothing boots.
//
// The controllers need the rights: kwokmachines get, list, watch, patch, delete; kwokmachines/status patch; nodes get,
// list, create, delete; kwokconfigs get, list, watch; kwokconfigs/status patch; secrets create.
//
// Start with SetupWithManager.
package kwok

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/patch"
)

// Finalizer keeps a KwokMachine until its simulated machine has ended.
const Finalizer = "infrastructure.runlevel.dev/kwokmachine"

const (
	concurrency = 10
	// startsAgain is the pause before the retry of a failed start, and takenAgain that before a foreign Node is checked
	// again.
	startsAgain, takenAgain = time.Second, 30 * time.Second
	// conflictPause is the pause for the cache to observe a write.
	conflictPause = 100 * time.Millisecond
)

// A machineReconciler is the controller of KwokMachines.
type machineReconciler struct {
	Client client.Client
	// Reader reads Nodes from the server.
	Reader client.Reader

	addresses addressPool
}

// SetupWithManager adds the controller to a manager.
func SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.KwokMachine{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(&machineReconciler{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()})
}

// Reconcile implements reconcile.Reconciler.
func (r *machineReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	machine := &v1alpha1.KwokMachine{}
	if err := r.Client.Get(ctx, request.NamespacedName, machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	result, err := r.reconcile(ctx, machine)
	if apierrors.IsConflict(err) { // the cache is behind
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	}
	return result, err
}

func (r *machineReconciler) reconcile(ctx context.Context, machine *v1alpha1.KwokMachine) (ctrl.Result, error) {
	if machine.DeletionTimestamp != nil {
		return r.end(ctx, machine)
	}
	if err := r.claim(ctx, machine); err != nil {
		return ctrl.Result{}, err
	}
	if machine.Status.Initialization.Provisioned {
		return r.keep(ctx, machine)
	}
	return r.start(ctx, machine)
}

// claim sets the finalizer and the providerID.
func (r *machineReconciler) claim(ctx context.Context, machine *v1alpha1.KwokMachine) error {
	before := machine.DeepCopy()
	isNew := controllerutil.AddFinalizer(machine, Finalizer)
	if machine.Spec.ProviderID == "" {
		machine.Spec.ProviderID = fmt.Sprintf("kwok://%s/%s", machine.Namespace, machine.Name)
		isNew = true
	}
	if !isNew {
		return nil
	}
	if err := patch.WithLock(ctx, r.Client, machine, before); err != nil {
		return fmt.Errorf("claim KwokMachine %s: %w", client.ObjectKeyFromObject(machine), err)
	}
	return nil
}

// start continues the start of a machine.
func (r *machineReconciler) start(ctx context.Context, machine *v1alpha1.KwokMachine) (ctrl.Result, error) {
	if isAwaited(machine) {
		return ctrl.Result{}, r.patchStatus(ctx, machine,
			notReady(waitingForMachine, "waits for its Machine"))
	}
	if remaining := time.Until(machine.CreationTimestamp.Add(machine.Spec.StartAfter.Duration)); remaining > 0 {
		message := fmt.Sprintf("starts at %s", time.Now().Add(remaining).UTC().Format(time.RFC3339))
		return ctrl.Result{RequeueAfter: remaining}, r.patchStatus(ctx, machine, notReady("Starting", message))
	}
	if failure := machine.Spec.StartFailure; failure != nil &&
		(failure.Times == 0 || machine.Status.StartFailures < failure.Times) {
		result := ctrl.Result{}
		failed := func(status *v1alpha1.InfrastructureStatus) {
			notReady("StartFailed", failure.Message)(status)
			if failure.Times > 0 {
				status.StartFailures++
				result.RequeueAfter = startsAgain
			}
		}
		return result, r.patchStatus(ctx, machine, failed)
	}
	if err := r.chooseAddress(ctx, machine); err != nil {
		return ctrl.Result{}, err
	}
	taken, err := r.makeNode(ctx, machine)
	if err != nil {
		return ctrl.Result{}, err
	}
	if taken != "" {
		return ctrl.Result{RequeueAfter: takenAgain}, r.patchStatus(ctx, machine, notReady("NodeTaken", taken))
	}
	if err := r.patchStatus(ctx, machine, isProvisioned); err != nil {
		return ctrl.Result{}, err
	}
	return r.keep(ctx, machine)
}

// chooseAddress sets status.addresses before the Node exists, so that the address is known after a restart.
func (r *machineReconciler) chooseAddress(ctx context.Context, machine *v1alpha1.KwokMachine) error {
	if len(machine.Status.Addresses) > 0 {
		return nil
	}
	address := machine.Spec.Address
	if address == "" {
		var err error
		if address, err = r.addresses.take(ctx, r.Reader); err != nil {
			return err
		}
	}
	r.addresses.reserve(address)
	return r.patchStatus(ctx, machine, func(status *v1alpha1.InfrastructureStatus) {
		status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: machine.Name},
		}
	})
}

// keep deletes a running machine after spec.vanishAfter if the field is set.
func (r *machineReconciler) keep(ctx context.Context, machine *v1alpha1.KwokMachine) (ctrl.Result, error) {
	ready := meta.FindStatusCondition(machine.Status.Conditions, "Ready")
	if machine.Spec.VanishAfter == nil || ready == nil {
		return ctrl.Result{}, nil
	}
	if remaining := time.Until(ready.LastTransitionTime.Add(machine.Spec.VanishAfter.Duration)); remaining > 0 {
		return ctrl.Result{RequeueAfter: remaining}, nil
	}
	if err := r.Client.Delete(ctx, machine,
		client.Preconditions{UID: &machine.UID}); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("have KwokMachine %s vanish: %w", client.ObjectKeyFromObject(machine), err)
	}
	return ctrl.Result{}, nil
}

// end continues the end of a machine.
func (r *machineReconciler) end(ctx context.Context, machine *v1alpha1.KwokMachine) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(machine, Finalizer) {
		return ctrl.Result{}, nil
	}
	if machine.Spec.NeverDeletes {
		return ctrl.Result{}, r.patchStatus(ctx, machine,
			notReady("NeverDeletes", "stays until spec.neverDeletes is false"))
	}
	if remaining := time.Until(machine.DeletionTimestamp.Add(machine.Spec.DeleteAfter.Duration)); remaining > 0 {
		message := fmt.Sprintf("ends at %s",
			machine.DeletionTimestamp.Add(machine.Spec.DeleteAfter.Duration).UTC().Format(time.RFC3339))
		return ctrl.Result{RequeueAfter: remaining}, r.patchStatus(ctx, machine, notReady("Ending", message))
	}
	if err := r.deleteNode(ctx, machine); err != nil {
		return ctrl.Result{}, err
	}
	before := machine.DeepCopy()
	controllerutil.RemoveFinalizer(machine, Finalizer)
	err := patch.WithLock(ctx, r.Client, machine, before)
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// patchStatus writes the status if the change has an effect.
func (r *machineReconciler) patchStatus(ctx context.Context, machine *v1alpha1.KwokMachine,
	change func(*v1alpha1.InfrastructureStatus),
) error {
	before := machine.DeepCopy()
	change(&machine.Status)
	if err := patch.StatusWithLock(ctx, r.Client, machine, before); err != nil {
		return fmt.Errorf("write the status of KwokMachine %s: %w", client.ObjectKeyFromObject(machine), err)
	}
	return nil
}

// notReady sets the condition Ready to False, with a reason.
func notReady(reason, message string) func(*v1alpha1.InfrastructureStatus) {
	return func(status *v1alpha1.InfrastructureStatus) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: "Ready", Status: metav1.ConditionFalse, Reason: reason, Message: message,
		})
	}
}

// isProvisioned sets the status of a machine that runs.
func isProvisioned(status *v1alpha1.InfrastructureStatus) {
	status.Initialization.Provisioned = true
	meta.SetStatusCondition(&status.Conditions,
		metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Running"})
}
