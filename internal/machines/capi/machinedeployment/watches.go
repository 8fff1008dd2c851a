package machinedeployment

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/enqueue"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// deploymentOfMachine returns the deployment of a machine, by the label that the controller of MachineSets sets.
func deploymentOfMachine(_ context.Context, machine client.Object) []reconcile.Request {
	name, ok := machine.GetLabels()[clusterv1.MachineDeploymentNameLabel]
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: machine.GetNamespace(), Name: name}}}
}

// deploymentsOfOrphan returns the deployments that may adopt a set.
func (r *Reconciler) deploymentsOfOrphan(ctx context.Context, set client.Object) []reconcile.Request {
	if metav1.GetControllerOfNoCopy(set) != nil {
		return nil
	}
	return r.deploymentsOf(ctx, set.GetNamespace(), func(d *clusterv1.MachineDeployment) bool {
		selector, err := replicas.SelectorOf(&d.Spec.Selector, d.Spec.Template.Labels)
		return err == nil && selector.Matches(labels.Set(set.GetLabels()))
	})
}

// deploymentsOfCluster returns the deployments of a Cluster.
func (r *Reconciler) deploymentsOfCluster(ctx context.Context, cluster client.Object) []reconcile.Request {
	return r.deploymentsOf(ctx, cluster.GetNamespace(), func(d *clusterv1.MachineDeployment) bool {
		return d.Spec.ClusterName == cluster.GetName()
	})
}

// allDeployments returns all deployments: a change of an extension may unblock a rollout.
func (r *Reconciler) allDeployments(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.deploymentsOf(ctx, metav1.NamespaceAll, func(*clusterv1.MachineDeployment) bool { return true })
}

func (r *Reconciler) deploymentsOf(ctx context.Context, namespace string,
	matches func(*clusterv1.MachineDeployment) bool) []reconcile.Request {
	return enqueue.Requests(ctx, r.cached, &clusterv1.MachineDeploymentList{}, matches, client.InNamespace(namespace))
}
