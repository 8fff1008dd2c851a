package machineset

import (
	"context"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/pkg/machine/replicas"
)

// byNode is an index of machines, of this controller's own: a manager may have another one of the same field.
const byNode = "machineset: status.nodeRef.name"

// indexByNode has the cache find the machine of a node.
func indexByNode(ctx context.Context, manager ctrl.Manager) error {
	return manager.GetFieldIndexer().IndexField(ctx, &machinev1beta1.Machine{}, byNode,
		func(object client.Object) []string {
			machine, ok := object.(*machinev1beta1.Machine)
			if !ok || machine.Status.NodeRef == nil {
				return nil
			}
			return []string{machine.Status.NodeRef.Name}
		})
}

// machineChanges are those that can change what a set has. What only ranks a machine is read when a set can spare one.
var machineChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, isMachine := e.ObjectOld.(*machinev1beta1.Machine)
	after, ok := e.ObjectNew.(*machinev1beta1.Machine)
	return !isMachine || !ok ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) ||
		nodeName(before) != nodeName(after)
}}

// readinessChanges leave out the heartbeats of nodes.
var readinessChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, isNode := e.ObjectOld.(*corev1.Node)
	after, ok := e.ObjectNew.(*corev1.Node)
	return !isNode || !ok || readinessOf(before) != readinessOf(after)
}}

// setsOfOrphan returns the sets that may adopt a machine.
func (r *MachineSetReconciler) setsOfOrphan(ctx context.Context, machine client.Object) []reconcile.Request {
	if metav1.GetControllerOfNoCopy(machine) != nil {
		return nil
	}
	var sets machinev1beta1.MachineSetList
	err := r.cached.List(ctx, &sets, client.InNamespace(machine.GetNamespace()), client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list MachineSets")
	}
	var requests []reconcile.Request
	for i := range sets.Items {
		selector, err := replicas.SelectorOf(&sets.Items[i].Spec.Selector, sets.Items[i].Spec.Template.Labels)
		if err == nil && selector.Matches(labels.Set(machine.GetLabels())) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&sets.Items[i])})
		}
	}
	return requests
}

// setsOfNode returns the set of a node's machine.
func (r *MachineSetReconciler) setsOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	var machines machinev1beta1.MachineList
	err := r.cached.List(ctx, &machines, client.MatchingFields{byNode: node.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list machines of a node", "node", node.GetName())
	}
	var requests []reconcile.Request
	for i := range machines.Items {
		if owner := metav1.GetControllerOfNoCopy(&machines.Items[i]); owner != nil {
			key := types.NamespacedName{Namespace: machines.Items[i].Namespace, Name: owner.Name}
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
	}
	return requests
}
