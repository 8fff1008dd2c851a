package machineset

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// creations passes only creations: a template can't be changed.
var creations = predicate.TypedFuncs[*metav1.PartialObjectMetadata]{
	UpdateFunc: func(event.TypedUpdateEvent[*metav1.PartialObjectMetadata]) bool { return false },
	DeleteFunc: func(event.TypedDeleteEvent[*metav1.PartialObjectMetadata]) bool { return false },
}

// awaitTemplate reconciles the sets of a missing template when it is created. The templates of a kind are watched once one
// of them is missing.
func (r *ClusterMachineSetReconciler) awaitTemplate(ctx context.Context, template clusterv1.ContractVersionedObjectReference) error {
	served, err := r.references.Served(ctx, template.GroupKind())
	if err != nil {
		return err
	}
	return r.templates.Watch(served.GroupVersionKind, func(ctx context.Context, object *metav1.PartialObjectMetadata) []reconcile.Request {
		return r.setsOfTemplate(ctx, template.GroupKind(), object)
	}, creations)
}

// setsOfTemplate returns the sets whose machines are created from a template.
func (r *ClusterMachineSetReconciler) setsOfTemplate(ctx context.Context, kind schema.GroupKind, template client.Object) []reconcile.Request {
	wanted := clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: template.GetName()}
	return r.setsOf(ctx, template.GetNamespace(), func(set *clusterv1.MachineSet) bool {
		spec := set.Spec.Template.Spec
		return spec.InfrastructureRef == wanted || spec.Bootstrap.ConfigRef == wanted
	})
}
