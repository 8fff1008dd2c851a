// Package controlplane replaces the machines of the control plane, by a ControlPlaneMachineSet of machine.openshift.io:
// one after the other, a new one first, balanced among failure domains. It creates and deletes Machines only. The
// controller of Machines executes a deletion, and the quorum guard of etcd holds it until the member was replaced.
//
// Decisions are pure: failuredomains.go spreads machines among failure domains, replacement.go plans which machine
// comes and which goes, problems.go finds what must stop the controller, and conditions.go has the conditions of the
// status.
//
// Start with SetupWithManager.
package controlplane

import (
	"context"
	"errors"
	"time"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/queue"
)

const (
	// setName is the only name that a ControlPlaneMachineSet can have.
	setName = "cluster"
	// setFinalizer holds a set until its machines are released: the garbage collector would delete the control plane.
	setFinalizer = "controlplanemachineset.machine.openshift.io"
)

// A Reconciler replaces the machines of ControlPlaneMachineSets.
type Reconciler struct {
	cached   client.Client
	live     client.Reader // reads from the API server
	recorder events.EventRecorder
	now      func() time.Time
}

// SetupWithManager adds the controller of ControlPlaneMachineSets to a manager.
func SetupWithManager(manager ctrl.Manager) error {
	r := &Reconciler{
		cached: manager.GetClient(), live: manager.GetAPIReader(),
		recorder: manager.GetEventRecorder("control-plane-machine-set-controller"), now: time.Now,
	}
	isMeant := func(set client.Object) bool { return set.GetName() == setName }
	sets := enqueue.Matching(r.cached, &machinev1.ControlPlaneMachineSetList{},
		func(set *machinev1.ControlPlaneMachineSet, _ client.Object) bool { return isMeant(set) })
	return ctrl.NewControllerManagedBy(manager).
		Named("controlplanemachineset").
		WithOptions(queue.Backoff(1, queue.RetrySoon)).
		For(&machinev1.ControlPlaneMachineSet{}, builder.WithPredicates(predicate.NewPredicateFuncs(isMeant))).
		Watches(&machinev1beta1.Machine{}, sets).
		Watches(&corev1.Node{}, sets, builder.WithPredicates(nodeChanges)).
		Complete(r)
}

// nodeChanges drops the heartbeats of nodes.
var nodeChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, isNode := e.ObjectOld.(*corev1.Node)
	after, ok := e.ObjectNew.(*corev1.Node)
	return !isNode || !ok || conditions.NodeReady(before).Status != conditions.NodeReady(after).Status ||
		deletion.IsControlPlane(before) != deletion.IsControlPlane(after)
}}

// Reconcile creates or deletes the next machine of a set, and writes its status.
//
// The cache may lag behind the last writes of this controller, or of another instance. So the cache only decides
// whether a read from the API server is necessary, and the plan is computed from that read.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s, err := r.read(ctx, r.cached, request.NamespacedName)
	if err == nil && s != nil && s.hasWork() {
		s, err = r.read(ctx, r.live, request.NamespacedName)
	}
	switch {
	case err != nil || s == nil:
		return ctrl.Result{}, err
	case s.set.DeletionTimestamp != nil:
		failure := r.release(ctx, s)
		if failure != nil { // otherwise the set no longer exists
			failure = errors.Join(failure, r.report(ctx, s, failure))
		}
		return ctrl.Result{}, failure
	}
	if err := patch.AddFinalizer(ctx, r.cached, s.set, setFinalizer); err != nil {
		return ctrl.Result{}, err
	}
	failure := r.execute(ctx, s)
	if err := r.report(ctx, s, failure); err != nil && failure == nil {
		failure = err
	}
	return ctrl.Result{RequeueAfter: s.after}, failure
}
