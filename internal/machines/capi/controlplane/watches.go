package controlplane

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// planesOfMachine returns the control plane of a machine's Cluster: for a worker as well, which the deletion of the
// control plane waits for.
func (r *Reconciler) planesOfMachine(ctx context.Context, object client.Object) []reconcile.Request {
	m, ok := object.(*clusterv1.Machine)
	if !ok {
		return nil
	}
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName},
		cluster); err != nil {
		return nil // the Cluster does not exist, or its creation event follows
	}
	return r.planesOfCluster(ctx, cluster)
}

// planesOfCluster returns the control plane of a Cluster.
func (r *Reconciler) planesOfCluster(_ context.Context, object client.Object) []reconcile.Request {
	cluster, ok := object.(*clusterv1.Cluster)
	if !ok || cluster.Spec.ControlPlaneRef != refTo(cluster.Spec.ControlPlaneRef.Name) {
		return nil
	}
	return []reconcile.Request{
		{NamespacedName: client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.ControlPlaneRef.Name}},
	}
}
