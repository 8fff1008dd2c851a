package openshift

import (
	"context"
	"fmt"
	"slices"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// nodeIndex finds machines by the names of their nodes.
const nodeIndex = "deletion.nodeRef"

// controlPlaneLabels are on the nodes of the control plane, either of them.
var controlPlaneLabels = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}

// nodeMatters passes the changes of nodes on which a deletion goes on. Heartbeats are none.
var nodeMatters = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, isNode := e.ObjectOld.(*corev1.Node)
		after, areNodes := e.ObjectNew.(*corev1.Node)
		return isNode && areNodes && (before.Spec.Unschedulable != after.Spec.Unschedulable ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero())
	},
}

func indexNodes(ctx context.Context, mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &machinev1beta1.Machine{}, nodeIndex, func(o client.Object) []string {
		if m, ok := o.(*machinev1beta1.Machine); ok && m.Status.NodeRef != nil {
			return []string{m.Status.NodeRef.Name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index machines by their nodes: %w", err)
	}
	return nil
}

// machinesOfNode returns the machines that are being deleted, and have a node.
func (r *MachineReconciler) machinesOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	var list machinev1beta1.MachineList
	if err := r.client.List(ctx, &list, client.MatchingFields{nodeIndex: node.GetName()}); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for _, m := range list.Items {
		if !m.DeletionTimestamp.IsZero() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&m)})
		}
	}
	return requests
}

func isControlPlane(node *corev1.Node) bool {
	return slices.ContainsFunc(controlPlaneLabels, func(label string) bool {
		_, ok := node.Labels[label]
		return ok
	})
}

// othersCordoned returns the other nodes of the control plane that take no pods.
func (r *MachineReconciler) othersCordoned(ctx context.Context, name string) ([]string, error) {
	var nodes corev1.NodeList
	if err := r.server.List(ctx, &nodes, client.MatchingFields{"spec.unschedulable": "true"}); err != nil {
		return nil, fmt.Errorf("list the nodes that take no pods: %w", err)
	}
	var names []string
	for _, node := range nodes.Items {
		if node.Name != name && isControlPlane(&node) {
			names = append(names, node.Name)
		}
	}
	return names, nil
}
