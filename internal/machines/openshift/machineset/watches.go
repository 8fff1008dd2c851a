package machineset

import (
	"context"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// byNode is the index that machines are found by, in the cache.
const byNode enqueue.NodeIndex = "machineset: status.nodeRef.name"

// machineChanges passes changes that can affect the replicas of a set. Those of the priority are read when a set has a
// surplus.
var machineChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, isMachine := e.ObjectOld.(*machinev1beta1.Machine)
	after, ok := e.ObjectNew.(*machinev1beta1.Machine)
	return !isMachine || !ok ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) ||
		enqueue.NodeName(before) != enqueue.NodeName(after)
}}

// readinessChanges drops the heartbeats of nodes.
var readinessChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, isNode := e.ObjectOld.(*corev1.Node)
	after, ok := e.ObjectNew.(*corev1.Node)
	return !isNode || !ok || readinessOf(before) != readinessOf(after)
}}

// setsOfOrphan returns the sets that may adopt a machine.
func (r *reconciler) setsOfOrphan(ctx context.Context, machine client.Object) []reconcile.Request {
	if metav1.GetControllerOfNoCopy(machine) != nil {
		return nil
	}
	return enqueue.Requests(ctx, r.cached, &machinev1beta1.MachineSetList{}, func(set *machinev1beta1.MachineSet) bool {
		selector, err := replicas.SelectorOf(&set.Spec.Selector, set.Spec.Template.Labels)
		return err == nil && selector.Matches(labels.Set(machine.GetLabels()))
	}, client.InNamespace(machine.GetNamespace()))
}

// setsOfNode returns the set of a node's machine.
func (r *reconciler) setsOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	var found []reconcile.Request
	for _, machine := range byNode.Machines(ctx, r.cached, node.GetName()) {
		if owner := metav1.GetControllerOfNoCopy(&machine); owner != nil {
			found = append(found,
				reconcile.Request{NamespacedName: client.ObjectKey{Namespace: machine.Namespace, Name: owner.Name}})
		}
	}
	return found
}
