// Package nodelink links Machines of machine.openshift.io and the nodes that run on them: a Machine's
// status.nodeRef names the node, an annotation of the node the Machine, and the labels, annotations and taints in the
// spec of the Machine are set on the node.
//
// A Machine and a node belong together if they share a providerID or an internal IP address. If there is more than one
// such pair, or the annotation of the node names another Machine that exists, nothing is linked: the node of a Machine
// is drained and deleted with it. Who may set a providerID or an address is for admission to check: it takes a right on
// nodes.
//
// Start with SetupWithManager. judge decides what belongs together; it is pure.
package nodelink

import (
	"context"
	"fmt"
	"sync"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/patch"
)

// MachineAnnotation is the annotation of a node that names its Machine, as namespace/name.
const MachineAnnotation = "machine.openshift.io/machine"

// concurrency limits how many nodes are linked at a time.
const concurrency = 10

// A reconciler links nodes to their Machines. Its requests are names of nodes.
type reconciler struct {
	client   client.Client
	server   client.Reader // reads past the cache
	recorder events.EventRecorder
	reported sync.Map // the last problem of each node, so that each is reported once
}

// SetupWithManager adds the controller and the indexes that it needs to a manager.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	r := &reconciler{
		client: mgr.GetClient(), server: mgr.GetAPIReader(), recorder: mgr.GetEventRecorder("nodelink-controller"),
	}
	return ctrl.NewControllerManagedBy(mgr).Named("nodelink").
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.nodesOfNode), builder.WithPredicates(nodeChanges)).
		Watches(&machinev1beta1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.nodesOfMachine),
			builder.WithPredicates(machineChanges)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(r)
}

// Reconcile links a node and its Machine, and sets the Machine's labels, annotations and taints on the node.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	node := &corev1.Node{}
	if err := r.client.Get(ctx, request.NamespacedName, node); err != nil {
		if apierrors.IsNotFound(err) { // its Machine keeps the nodeRef, which shows that it has lost its node
			r.reported.Delete(request.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if node.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	seen, err := r.gatherCandidates(ctx, node)
	if err != nil {
		return ctrl.Result{}, err
	}
	machine, problem := judge(seen)
	switch {
	case problem != "":
		r.reportProblem(ctx, seen, problem)
		return ctrl.Result{}, nil
	case machine == nil:
		r.reported.Delete(node.Name)
		return ctrl.Result{}, nil
	}
	return r.link(ctx, node, machine)
}

func (r *reconciler) link(ctx context.Context, node *corev1.Node,
	machine *machinev1beta1.Machine) (ctrl.Result, error) {
	err := r.setNodeRef(ctx, machine, node)
	if err == nil {
		err = r.patchNode(ctx, node, machine)
	}
	switch {
	case apierrors.IsConflict(err): // the cache is outdated; the missing change may not be watched
		return ctrl.Result{RequeueAfter: time.Second}, nil
	case apierrors.IsInvalid(err):
		seen := candidates{node: node, machines: []*machinev1beta1.Machine{machine}}
		r.reportProblem(ctx, seen,
			fmt.Sprintf("node %s can't get the labels, annotations and taints of Machine %s: %v", node.Name,
				name(machine), err))
		return ctrl.Result{}, reconcile.TerminalError(err)
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil // the node or the Machine was deleted
	case err == nil:
		r.reported.Delete(node.Name)
	}
	return ctrl.Result{}, err
}

// setNodeRef sets the nodeRef of the Machine. The write fails if the Machine has changed since it was read, so that a
// nodeRef that was set meanwhile, or another Machine of the same name, is not overwritten.
func (r *reconciler) setNodeRef(ctx context.Context, machine *machinev1beta1.Machine, node *corev1.Node) error {
	before := machine.Status.NodeRef
	if before != nil && before.Name == node.Name && before.UID == node.UID {
		return nil
	}
	changed, now := machine.DeepCopy(), metav1.Now()
	changed.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: node.Name, UID: node.UID}
	changed.Status.LastUpdated = &now
	if err := patch.StatusWithLock(ctx, r.client, changed, machine); err != nil {
		return fmt.Errorf("set nodeRef of Machine %s to node %s: %w", name(machine), node.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Machine linked to its node", "machine", name(machine))
	if before != nil {
		r.recorder.Eventf(machine, node, corev1.EventTypeNormal, "NodeReplaced", "Link",
			"node %s (UID %s) replaces node %s (UID %s), which does not exist any more", node.Name, node.UID,
			before.Name,
			before.UID)
	}
	return nil
}

// patchNode sets the labels, annotations and taints that the node lacks. The patch has only the changes, and the UID,
// so that it fails for another node of the same name. A patch replaces the whole list of taints, so it is only valid
// for the resourceVersion that was read.
func (r *reconciler) patchNode(ctx context.Context, node *corev1.Node, machine *machinev1beta1.Machine) error {
	wanted, hasNewTaints := wantedNode(node, machine)
	if wanted == nil {
		return nil
	}
	before := node.DeepCopy()
	before.UID = ""
	changes := client.MergeFrom(before)
	if hasNewTaints {
		changes = client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	if err := r.client.Patch(ctx, wanted, changes); err != nil {
		return fmt.Errorf("patch node %s with the labels, annotations and taints of Machine %s: %w", node.Name,
			name(machine), err)
	}
	return nil
}
