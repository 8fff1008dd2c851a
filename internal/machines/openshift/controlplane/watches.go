package controlplane

import (
	"context"

	machinev1 "github.com/openshift/api/machine/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
)

// nodeChanges drops the heartbeats of nodes.
var nodeChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, isNode := e.ObjectOld.(*corev1.Node)
	after, ok := e.ObjectNew.(*corev1.Node)
	return !isNode || !ok || NodeReady(before).Status != NodeReady(after).Status ||
		deletion.IsControlPlane(before) != deletion.IsControlPlane(after)
}}

// setOfMachine returns the set of a machine's namespace, if there is one.
func (r *Reconciler) setOfMachine(ctx context.Context, machine client.Object) []reconcile.Request {
	return r.sets(ctx, client.InNamespace(machine.GetNamespace()))
}

// allSets returns the sets of all namespaces.
func (r *Reconciler) allSets(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.sets(ctx)
}

func (r *Reconciler) sets(ctx context.Context, where ...client.ListOption) []reconcile.Request {
	isMeant := func(set *machinev1.ControlPlaneMachineSet) bool { return set.Name == setName }
	return enqueue.Requests(ctx, r.cached, &machinev1.ControlPlaneMachineSetList{}, isMeant, where...)
}
