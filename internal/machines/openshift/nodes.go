package openshift

import (
	"context"
	"fmt"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/enqueue"
)

// nodeIndex finds machines by the names of their nodes.
const nodeIndex enqueue.NodeIndex = "deletion.nodeRef"

// nodeMatters passes the changes of nodes that affect a deletion, but no heartbeats.
var nodeMatters = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, isNode := e.ObjectOld.(*corev1.Node)
		after, areNodes := e.ObjectNew.(*corev1.Node)
		return isNode && areNodes && (before.Spec.Unschedulable != after.Spec.Unschedulable ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero())
	},
}

// machinesOfNode returns the machines that are being deleted, and have a node.
func (r *MachineReconciler) machinesOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	isDeleting := func(m *machinev1beta1.Machine) bool { return !m.DeletionTimestamp.IsZero() }
	return enqueue.Requests(ctx, r.client, &machinev1beta1.MachineList{}, isDeleting, client.MatchingFields{string(nodeIndex): node.GetName()})
}

// othersCordoned returns the other nodes of the control plane that are cordoned.
func (r *MachineReconciler) othersCordoned(ctx context.Context, name string) ([]string, error) {
	var nodes corev1.NodeList
	if err := r.server.List(ctx, &nodes, client.MatchingFields{"spec.unschedulable": "true"}); err != nil {
		return nil, fmt.Errorf("list the nodes that take no pods: %w", err)
	}
	var names []string
	for _, node := range nodes.Items {
		if node.Name != name && deletion.IsControlPlane(&node) {
			names = append(names, node.Name)
		}
	}
	return names, nil
}
