package machineset

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/pkg/machine/replicas"
)

// clusterChanges leave out what has no bearing on sets.
var clusterChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, isCluster := e.ObjectOld.(*clusterv1.Cluster)
	after, ok := e.ObjectNew.(*clusterv1.Cluster)
	return !isCluster || !ok || ptr.Deref(before.Spec.Paused, false) != ptr.Deref(after.Spec.Paused, false)
}}

// setsOfOrphan returns the sets that may adopt a machine.
func (r *ClusterMachineSetReconciler) setsOfOrphan(ctx context.Context, machine client.Object) []reconcile.Request {
	if metav1.GetControllerOfNoCopy(machine) != nil {
		return nil
	}
	return r.setsOf(ctx, machine.GetNamespace(), func(set *clusterv1.MachineSet) bool {
		selector, err := replicas.SelectorOf(&set.Spec.Selector, set.Spec.Template.Labels)
		return err == nil && selector.Matches(labels.Set(machine.GetLabels()))
	})
}

// setsOfCluster returns the sets of a Cluster.
func (r *ClusterMachineSetReconciler) setsOfCluster(ctx context.Context, cluster client.Object) []reconcile.Request {
	return r.setsOf(ctx, cluster.GetNamespace(), func(set *clusterv1.MachineSet) bool {
		return set.Spec.ClusterName == cluster.GetName()
	})
}

// setsOfDeployment finds the sets of a MachineDeployment, which says how many of their machines are remediated at once.
func setsOfDeployment(r *ClusterMachineSetReconciler) handler.MapFunc {
	return func(ctx context.Context, deployment client.Object) []reconcile.Request {
		return r.setsOf(ctx, deployment.GetNamespace(), func(set *clusterv1.MachineSet) bool {
			return metav1.IsControlledBy(set, deployment)
		})
	}
}

func (r *ClusterMachineSetReconciler) setsOf(ctx context.Context, namespace string, isOne func(*clusterv1.MachineSet) bool) []reconcile.Request {
	var sets clusterv1.MachineSetList
	if err := r.cached.List(ctx, &sets, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list MachineSets")
	}
	var found []reconcile.Request
	for i := range sets.Items {
		if isOne(&sets.Items[i]) {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&sets.Items[i])})
		}
	}
	return found
}
