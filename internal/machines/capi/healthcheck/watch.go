package healthcheck

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/enqueue"
)

// byNode is the index of the cache that finds Machines by the names of their Nodes. The controller of Machines has one
// of its own, so that each can run without the other.
const byNode = "clusterapi.healthcheck.nodeName"

func addIndex(ctx context.Context, indexer client.FieldIndexer) error {
	return enqueue.AddIndex(ctx, indexer, byNode, func(m *clusterv1.Machine) []string {
		return []string{m.Status.NodeRef.Name}
	})
}

// machineChanges passes changes that affect whether a machine is healthy, or selected.
var machineChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
	return before.UID != now.UID || before.Generation != now.Generation ||
		!maps.Equal(before.Labels, now.Labels) || !maps.Equal(before.Annotations, now.Annotations) ||
		before.Status.NodeRef != now.Status.NodeRef ||
		!equality.Semantic.DeepEqual(before.Status.Conditions, now.Status.Conditions)
}}

// clusterChanges passes the beginning and the end of a pause, and changes of conditions: machines are not unhealthy
// while their Cluster starts.
var clusterChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*clusterv1.Cluster), e.ObjectNew.(*clusterv1.Cluster)
	return before.UID != now.UID || before.Generation != now.Generation ||
		!equality.Semantic.DeepEqual(before.Status.Conditions, now.Status.Conditions)
}}

// checksOfMachine returns the health checks that select a Machine.
func (r *Reconciler) checksOfMachine(ctx context.Context, machine client.Object) []reconcile.Request {
	return r.checks(ctx, machine.GetNamespace(), func(check *clusterv1.MachineHealthCheck) bool {
		selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
		return err == nil && selector.Matches(labels.Set(machine.GetLabels()))
	})
}

// checksOfCluster returns the health checks of a Cluster.
func (r *Reconciler) checksOfCluster(ctx context.Context, cluster client.Object) []reconcile.Request {
	return r.checks(ctx, cluster.GetNamespace(), func(check *clusterv1.MachineHealthCheck) bool {
		return check.Spec.ClusterName == cluster.GetName()
	})
}

// checksOfNode returns the health checks that select the Machines of a Node.
func (r *Reconciler) checksOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	var machines clusterv1.MachineList
	if err := r.client.List(ctx, &machines, client.MatchingFields{byNode: node.GetName()},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the index exists, and the cache does not fail
	}
	var found []reconcile.Request
	for i := range machines.Items {
		found = append(found, r.checksOfMachine(ctx, &machines.Items[i])...)
	}
	return found
}

func (r *Reconciler) checks(ctx context.Context, namespace string,
	isMeant func(*clusterv1.MachineHealthCheck) bool) []reconcile.Request {
	return enqueue.Requests(ctx, r.client, &clusterv1.MachineHealthCheckList{}, isMeant, client.InNamespace(namespace))
}
