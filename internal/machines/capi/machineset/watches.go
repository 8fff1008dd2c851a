package machineset

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// mayAdopt reports whether a set may adopt a machine.
func mayAdopt(set *clusterv1.MachineSet, machine client.Object) bool {
	if metav1.GetControllerOfNoCopy(machine) != nil {
		return false
	}
	selector, err := replicas.SelectorOf(&set.Spec.Selector, set.Spec.Template.Labels)
	return err == nil && selector.Matches(labels.Set(machine.GetLabels()))
}

func isOfCluster(set *clusterv1.MachineSet, cluster client.Object) bool {
	return set.Spec.ClusterName == cluster.GetName()
}

// isOfDeployment reports whether a MachineDeployment limits how many machines of a set are remediated at once.
func isOfDeployment(set *clusterv1.MachineSet, deployment client.Object) bool {
	return metav1.IsControlledBy(set, deployment)
}

// creations passes only creations: a template can't be changed.
var creations = predicate.TypedFuncs[*metav1.PartialObjectMetadata]{
	UpdateFunc: func(event.TypedUpdateEvent[*metav1.PartialObjectMetadata]) bool { return false },
	DeleteFunc: func(event.TypedDeleteEvent[*metav1.PartialObjectMetadata]) bool { return false },
}

// awaitTemplate reconciles the sets of a missing template when the template is created. The templates of its kind are
// watched from then on.
func (r *Reconciler) awaitTemplate(ctx context.Context, template contract.Reference) error {
	if !template.IsDefined() {
		return nil
	}
	served, err := r.machines.References.Served(ctx, template.GroupKind())
	if err != nil {
		return err
	}
	return r.templates.Watch(served.GroupVersionKind,
		func(ctx context.Context, object *metav1.PartialObjectMetadata) []reconcile.Request {
			created := template
			created.Name = object.Name
			return enqueue.Requests(ctx, r.Client, &clusterv1.MachineSetList{}, func(set *clusterv1.MachineSet) bool {
				spec := set.Spec.Template.Spec
				return spec.InfrastructureRef == created || spec.Bootstrap.ConfigRef == created
			}, client.InNamespace(object.Namespace))
		}, creations)
}
