// Package machineset keeps as many machines as the MachineSets of machine.openshift.io ask for: it makes machines
// of a set's template, deletes those that the set can spare, adopts and releases machines by their labels, and
// counts them in the set's status. It deletes Machine objects only; what that takes, drains and lifecycle hooks
// included, is the business of the controller of Machines.
//
// What is to be done is decided by package replicas, and which machine goes first in priority.go. Both are pure: they get
// what was seen, and return values.
//
// SetupWithManager is the call to start from.
package machineset

import (
	"context"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A MachineSet whose machines are refused is tried again after retrySoon, and then after twice as long each time,
// up to retrySeldom: an administrator who raises a quota waits for that.
const retrySoon, retrySeldom = 250 * time.Millisecond, time.Minute

const (
	concurrency = 10 // MachineSets that are worked on at a time
	requests    = 20 // machines of one MachineSet that are made or deleted at a time
)

// A MachineSetReconciler keeps the machines of MachineSets.
type MachineSetReconciler struct {
	cached   client.Client
	live     client.Reader // asks the API server
	recorder events.EventRecorder
	now      func() time.Time
	// published are the selectors that need not be written.
	published publishedSelectors
}

// SetupWithManager has a manager keep the machines of all MachineSets that its cache has.
func SetupWithManager(ctx context.Context, manager ctrl.Manager) error {
	r := &MachineSetReconciler{
		cached: manager.GetClient(), live: manager.GetAPIReader(),
		recorder: manager.GetEventRecorder("machineset-controller"), now: time.Now,
	}
	if err := byNode.Add(ctx, manager); err != nil {
		return err
	}
	owner := handler.EnqueueRequestForOwner(manager.GetScheme(), manager.GetRESTMapper(), &machinev1beta1.MachineSet{},
		handler.OnlyControllerOwner())
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retrySoon, retrySeldom)
	return ctrl.NewControllerManagedBy(manager).
		Named("machineset").
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency, RateLimiter: backoff}).
		For(&machinev1beta1.MachineSet{}).
		Watches(&machinev1beta1.Machine{}, owner, builder.WithPredicates(machineChanges)).
		Watches(&machinev1beta1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.setsOfOrphan), builder.WithPredicates(machineChanges)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.setsOfNode), builder.WithPredicates(readinessChanges)).
		Complete(r)
}

// Reconcile makes or deletes the machines that a MachineSet lacks or can spare, and writes its status.
//
// The cache may lag behind what this controller did a moment ago, behind what another instance of it did, and
// behind an annotation that tells which machine is to go. So the cache only says that something may be to be done;
// what that is follows from a look at the API server.
func (r *MachineSetReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	seen, err := readSnapshot(ctx, r.cached, request.NamespacedName)
	if err == nil && seen.isManaged() && !seen.plan(r.now()).IsEmpty() {
		seen, err = readSnapshot(ctx, r.live, request.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if !seen.isManaged() {
		r.published.forget(request.NamespacedName)
		return ctrl.Result{}, nil // the garbage collector deletes its machines, or releases them
	}
	problem := r.execute(ctx, seen, seen.plan(r.now()))
	return r.report(ctx, seen, problem)
}
