// Package machineset maintains the replicas of the MachineSets of machine.openshift.io: it creates machines from a
// set's template, deletes surplus machines, adopts and releases machines by their labels, and counts them in the
// set's status. The controller of Machines executes the deletion of a Machine, with drains and lifecycle hooks.
//
// Package replicas decides what to do, and priority.go which machine is deleted first. Both are pure: they get the
// observed state, and return values.
//
// SetupWithManager is the call to start from.
package machineset

import (
	"context"
	"sync"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/runlevel/runlevel/internal/machines/queue"
)

const (
	concurrency = 10 // MachineSets that are reconciled at a time
	requests    = 20 // machines of one MachineSet that are created or deleted at a time
)

// A reconciler maintains the machines of MachineSets.
type reconciler struct {
	cached   client.Client
	live     client.Reader // reads from the API server
	recorder events.EventRecorder
	now      func() time.Time
	// published has the resourceVersions at which the selectors of MachineSets were found in their status, by the sets'
	// names.
	published sync.Map
}

// SetupWithManager adds the controller of MachineSets to a manager.
func SetupWithManager(ctx context.Context, manager ctrl.Manager) error {
	r := &reconciler{
		cached: manager.GetClient(), live: manager.GetAPIReader(),
		recorder: manager.GetEventRecorder("machineset-controller"), now: time.Now,
	}
	if err := byNode.Add(ctx, manager); err != nil {
		return err
	}
	owner := handler.EnqueueRequestForOwner(manager.GetScheme(), manager.GetRESTMapper(), &machinev1beta1.MachineSet{},
		handler.OnlyControllerOwner())
	return ctrl.NewControllerManagedBy(manager).
		Named("machineset").
		WithOptions(queue.Backoff(concurrency, queue.RetrySoon)).
		For(&machinev1beta1.MachineSet{}).
		Watches(&machinev1beta1.Machine{}, owner, builder.WithPredicates(machineChanges)).
		Watches(&machinev1beta1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.setsOfOrphan),
			builder.WithPredicates(machineChanges)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.setsOfNode),
			builder.WithPredicates(readinessChanges)).
		Complete(r)
}

// Reconcile creates missing machines of a MachineSet, deletes surplus ones, and writes its status.
//
// The cache may lag behind the last writes of this or another instance of the controller, and behind an annotation that
// selects a machine for deletion. So the cache only decides whether there may be something to do; the plan is based on
// a read of the API server.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	seen, err := readSnapshot(ctx, r.cached, request.NamespacedName)
	if err == nil && seen.isManaged() && !seen.plan(r.now()).IsEmpty() {
		seen, err = readSnapshot(ctx, r.live, request.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if !seen.isManaged() {
		r.published.Delete(request.NamespacedName)
		return ctrl.Result{}, nil // the garbage collector deletes its machines, or releases them
	}
	problem := r.execute(ctx, seen, seen.plan(r.now()))
	return r.report(ctx, seen, problem)
}
