package nodelink

import (
	"context"
	"errors"
	"maps"
	"slices"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// nodeChanges passes changes that may create or end a link, or affect synced fields, but no heartbeats.
var nodeChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return before.UID != now.UID || before.Spec.ProviderID != now.Spec.ProviderID ||
		!slices.Equal(internalIPs(before.Status.Addresses), internalIPs(now.Status.Addresses)) ||
		!maps.Equal(before.Labels, now.Labels) || !maps.Equal(before.Annotations, now.Annotations) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, now.Spec.Taints)
}}

// machineChanges passes changes of the spec, deletions, and changes of the addresses and the nodeRef.
var machineChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*machinev1beta1.Machine), e.ObjectNew.(*machinev1beta1.Machine)
	return before.UID != now.UID || before.Generation != now.Generation ||
		!slices.Equal(internalIPs(before.Status.Addresses), internalIPs(now.Status.Addresses)) ||
		!equality.Semantic.DeepEqual(before.Status.NodeRef, now.Status.NodeRef)
}}

// maxCandidates limits how many candidates are reconciled after a change. If more candidates share an address or a
// providerID, it identifies no pair, and nothing is linked.
const maxCandidates = 10

// nodesOfNode returns the node, and the others that its Machines could belong to: if a node is deleted or changes its
// address, its Machine may belong to another node.
func (r *reconciler) nodesOfNode(ctx context.Context, object client.Object) []reconcile.Request {
	node := object.(*corev1.Node)
	requests := []reconcile.Request{{NamespacedName: types.NamespacedName{Name: node.Name}}}
	machines, err := r.machines(ctx, node)
	owners, ownersErr := r.owners(ctx, node)
	if err := errors.Join(err, ownersErr); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "find the Machines of a node", "node", node.Name)
	}
	machines = append(machines, owners...)
	for _, machine := range machines[:min(maxCandidates, len(machines))] {
		requests = append(requests, r.nodesOfMachine(ctx, machine)...)
	}
	return requests
}

// nodesOfMachine returns the nodes that a Machine could belong to, those that name it, and the node of its nodeRef.
func (r *reconciler) nodesOfMachine(ctx context.Context, object client.Object) []reconcile.Request {
	machine := object.(*machinev1beta1.Machine)
	nodes, err := r.nodes(ctx, machine)
	naming, namingErr := listBy[*corev1.Node, corev1.NodeList](ctx, r.client, "nodes", byMachine, name(machine))
	if err := errors.Join(err, namingErr); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "find the nodes of a Machine", "machine", name(machine))
	}
	nodes = append(naming, nodes...)
	var requests []reconcile.Request
	for _, node := range nodes[:min(maxCandidates, len(nodes))] {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: node.Name}})
	}
	if ref := machine.Status.NodeRef; ref != nil {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: ref.Name}})
	}
	return requests
}

// maxNote is the longest note of an event that the API server accepts.
const maxNote = 1024

// reportProblem reports a problem of a node once, in the log and in events of its Machines.
func (r *reconciler) reportProblem(ctx context.Context, seen candidates, problem string) {
	if before, _ := r.reported.Swap(seen.node.Name, problem); before == problem {
		return
	}
	ctrl.LoggerFrom(ctx).Info("node not linked", "problem", problem)
	for i, machine := range seen.machines {
		if i == most { // an event for each pair would be too many
			return
		}
		r.recorder.Eventf(machine, seen.node, corev1.EventTypeWarning, "NodeNotLinked", "Link",
			"%s", printable.Truncate(problem, maxNote))
	}
}
