package contract

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// FindCluster returns the Cluster that a spec.clusterName names; nil if there is none.
func FindCluster(ctx context.Context, reader client.Reader, namespace, name string) (*clusterv1.Cluster, error) {
	cluster := &clusterv1.Cluster{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cluster)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Cluster %s/%s: %w", namespace, name, err)
	}
	return cluster, nil
}

// IsPaused reports whether an object must not be changed: it is annotated, or its Cluster is paused. The Cluster may be nil.
func IsPaused(object client.Object, cluster *clusterv1.Cluster) bool {
	_, isAnnotated := object.GetAnnotations()[clusterv1.PausedAnnotation]
	return isAnnotated || cluster != nil && ptr.Deref(cluster.Spec.Paused, false)
}

// ClusterPauses drops updates of Clusters, except for the beginning and the end of a pause.
var ClusterPauses = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, isCluster := e.ObjectOld.(*clusterv1.Cluster)
	after, ok := e.ObjectNew.(*clusterv1.Cluster)
	return !isCluster || !ok || ptr.Deref(before.Spec.Paused, false) != ptr.Deref(after.Spec.Paused, false)
}}

// ClusterOwner returns the reference to a Cluster that owns objects.
func ClusterOwner(cluster *clusterv1.Cluster) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID}
}
