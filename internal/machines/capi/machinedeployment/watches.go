package machinedeployment

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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

// mayAdopt reports whether a deployment may adopt a set.
func mayAdopt(d *clusterv1.MachineDeployment, set client.Object) bool {
	if metav1.GetControllerOfNoCopy(set) != nil {
		return false
	}
	selector, err := replicas.SelectorOf(&d.Spec.Selector, d.Spec.Template.Labels)
	return err == nil && selector.Matches(labels.Set(set.GetLabels()))
}

func isOfCluster(d *clusterv1.MachineDeployment, cluster client.Object) bool {
	return d.Spec.ClusterName == cluster.GetName()
}

// mayUpdateInPlace is true for each deployment: a change of an extension may unblock its rollout.
func mayUpdateInPlace(*clusterv1.MachineDeployment, client.Object) bool { return true }
