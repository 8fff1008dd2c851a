package machineset

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// setsOfOrphan returns the sets that may adopt a machine.
func (r *Reconciler) setsOfOrphan(ctx context.Context, machine client.Object) []reconcile.Request {
	if metav1.GetControllerOfNoCopy(machine) != nil {
		return nil
	}
	return r.setsOf(ctx, machine.GetNamespace(), func(set *clusterv1.MachineSet) bool {
		selector, err := replicas.SelectorOf(&set.Spec.Selector, set.Spec.Template.Labels)
		return err == nil && selector.Matches(labels.Set(machine.GetLabels()))
	})
}

// setsOfCluster returns the sets of a Cluster.
func (r *Reconciler) setsOfCluster(ctx context.Context, cluster client.Object) []reconcile.Request {
	return r.setsOf(ctx, cluster.GetNamespace(), func(set *clusterv1.MachineSet) bool {
		return set.Spec.ClusterName == cluster.GetName()
	})
}

// setsOfDeployment returns the sets of a MachineDeployment, which limits how many of their machines are remediated at
// once.
func (r *Reconciler) setsOfDeployment(ctx context.Context, deployment client.Object) []reconcile.Request {
	return r.setsOf(ctx, deployment.GetNamespace(), func(set *clusterv1.MachineSet) bool {
		return metav1.IsControlledBy(set, deployment)
	})
}

func (r *Reconciler) setsOf(ctx context.Context, namespace string,
	matches func(*clusterv1.MachineSet) bool) []reconcile.Request {
	return enqueue.Requests(ctx, r.cached, &clusterv1.MachineSetList{}, matches, client.InNamespace(namespace))
}

// creations passes only creations: a template can't be changed.
var creations = predicate.TypedFuncs[*metav1.PartialObjectMetadata]{
	UpdateFunc: func(event.TypedUpdateEvent[*metav1.PartialObjectMetadata]) bool { return false },
	DeleteFunc: func(event.TypedDeleteEvent[*metav1.PartialObjectMetadata]) bool { return false },
}

// awaitTemplate reconciles the sets of a missing template when it is created. The templates of a kind are watched once
// one of them is missing.
func (r *Reconciler) awaitTemplate(ctx context.Context, template clusterv1.ContractVersionedObjectReference) error {
	if !template.IsDefined() {
		return nil
	}
	served, err := r.references.Served(ctx, template.GroupKind())
	if err != nil {
		return err
	}
	return r.templates.Watch(served.GroupVersionKind,
		func(ctx context.Context, object *metav1.PartialObjectMetadata) []reconcile.Request {
			return r.setsOfTemplate(ctx, template.GroupKind(), object)
		}, creations)
}

// setsOfTemplate returns the sets whose machines are created from a template.
func (r *Reconciler) setsOfTemplate(ctx context.Context, kind schema.GroupKind,
	template client.Object) []reconcile.Request {
	wanted := clusterv1.ContractVersionedObjectReference{
		APIGroup: kind.Group,
		Kind:     kind.Kind,
		Name:     template.GetName(),
	}
	return r.setsOf(ctx, template.GetNamespace(), func(set *clusterv1.MachineSet) bool {
		spec := set.Spec.Template.Spec
		return spec.InfrastructureRef == wanted || spec.Bootstrap.ConfigRef == wanted
	})
}
