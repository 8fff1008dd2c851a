package capi

import (
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
)

// The indexes of the cache.
const (
	nodesByProviderID    = "clusterapi.providerID"
	machinesByNodeName   = "clusterapi.nodeName"
	machinesByProviderID = "clusterapi.machineProviderID"
)

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	return errors.Join(
		enqueue.AddIndex(ctx, indexer, nodesByProviderID, func(n *corev1.Node) []string {
			return []string{n.Spec.ProviderID}
		}),
		enqueue.AddIndex(ctx, indexer, machinesByNodeName, func(m *clusterv1.Machine) []string {
			return []string{m.Status.NodeRef.Name}
		}),
		enqueue.AddIndex(ctx, indexer, machinesByProviderID, func(m *clusterv1.Machine) []string {
			return []string{m.Spec.ProviderID}
		}),
	)
}

// machineOf returns the Machine that owns an object. An object without an owner may belong to the Machine of the same
// name, which adopts it.
func machineOf(_ context.Context, object *metav1.PartialObjectMetadata) []reconcile.Request {
	name, owner := object.Name, metav1.GetControllerOf(object)
	if owner != nil {
		name = owner.Name
	}
	if owner != nil && !contract.IsOwnerOfKind(*owner, "Machine") {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: object.Namespace, Name: name}}}
}

// machineMatters passes all changes of Machines except for the status that this controller writes itself: each write
// would cause another reconciliation, and another eviction of the remaining pods.
var machineMatters = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, wasMachine := e.ObjectOld.(*clusterv1.Machine)
		after, isMachine := e.ObjectNew.(*clusterv1.Machine)
		return !wasMachine || !isMachine || before.Generation != after.Generation ||
			before.ResourceVersion == after.ResourceVersion ||
			!maps.Equal(before.Annotations, after.Annotations) || !maps.Equal(before.Labels, after.Labels) ||
			!slices.Equal(before.Finalizers, after.Finalizers) ||
			!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) ||
			!equality.Semantic.DeepEqual(othersConditions(before), othersConditions(after))
	},
}

// othersConditions returns the conditions that other controllers write.
func othersConditions(m *clusterv1.Machine) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(m.Status.Conditions), func(c metav1.Condition) bool {
		return slices.Contains(ownConditions, c.Type)
	})
}

// nodeMatters passes the changes of nodes that affect a Machine's status or its deletion, but no heartbeats.
var nodeMatters = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, wasNode := e.ObjectOld.(*corev1.Node)
		after, isNode := e.ObjectNew.(*corev1.Node)
		return !wasNode || !isNode || !equality.Semantic.DeepEqual(withoutHeartbeats(before), withoutHeartbeats(after))
	},
}

// withoutHeartbeats returns a node without the fields that change all the time, and without the conditions of drains,
// which the controller writes itself.
func withoutHeartbeats(node *corev1.Node) *corev1.Node {
	short := &corev1.Node{Spec: node.Spec}
	short.Labels, short.Annotations, short.DeletionTimestamp = node.Labels, node.Annotations, node.DeletionTimestamp
	short.Status.NodeInfo = node.Status.NodeInfo
	for _, condition := range node.Status.Conditions {
		if _, isOwn := drain.Ended[condition.Type]; isOwn {
			continue
		}
		condition.LastHeartbeatTime = metav1.Time{}
		short.Status.Conditions = append(short.Status.Conditions, condition)
	}
	return short
}

// machinesOfNode returns the Machines that are linked to a node, or have its providerID.
func (r *Reconciler) machinesOfNode(ctx context.Context, object client.Object) []reconcile.Request {
	node, ok := object.(*corev1.Node)
	if !ok {
		return nil
	}
	found := r.machinesWith(ctx, client.MatchingFields{machinesByNodeName: node.Name})
	if node.Spec.ProviderID != "" {
		found = append(found, r.machinesWith(ctx, client.MatchingFields{machinesByProviderID: node.Spec.ProviderID})...)
	}
	return found
}

func (r *Reconciler) machinesOfCluster(ctx context.Context, cluster client.Object) []reconcile.Request {
	return r.machinesWith(ctx, client.InNamespace(cluster.GetNamespace()),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.GetName()})
}

func (r *Reconciler) machinesWith(ctx context.Context, which ...client.ListOption) []reconcile.Request {
	return enqueue.Requests(ctx, r.client, &clusterv1.MachineList{}, func(*clusterv1.Machine) bool {
		return true
	}, which...)
}

// overtakes returns the function by which the queue decides whether the Machine of a request precedes others. The
// function reads the cache. ctx ends its wait for a cache that has not synced.
func (r *Reconciler) overtakes(ctx context.Context) func(ctrl.Request) bool {
	return func(request ctrl.Request) bool {
		m := &clusterv1.Machine{}
		return r.client.Get(ctx, request.NamespacedName, m) == nil && !m.DeletionTimestamp.IsZero() && isEnding(m)
	}
}

// isEnding reports whether the deletion of a Machine only has to be completed: no hook, pod or volume holds it, or the
// last hook in its condition was just removed. A Machine does not precede others while its Node is drained: repeated
// checks of the same pods must not delay the drains of other Nodes.
func isEnding(m *clusterv1.Machine) bool {
	switch deletion.StageClusterAPI(m) {
	case deletion.BeforeDrain:
		return len(deletion.HooksClusterAPI(m, clusterv1.PreDrainDeleteHookAnnotationPrefix)) == 0
	case deletion.BeforeTerminate:
		return len(deletion.HooksClusterAPI(m, clusterv1.PreTerminateDeleteHookAnnotationPrefix)) == 0
	case deletion.Terminating, deletion.RemovingConfig, deletion.RemovingNode, deletion.Completed:
		return true
	}
	return false
}
