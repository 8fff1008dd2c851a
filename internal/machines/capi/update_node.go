package capi

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/patch"
)

// This file has the writes of an update in place to the Node: the cordon, the evictions and the conditions.

// isDrainRequested reports whether the node must be drained before the first call of the extension.
func (u *updateScope) isDrainRequested(ctx context.Context) (bool, error) {
	if metav1.HasAnnotation(u.m.ObjectMeta, clusterv1.ExcludeNodeDrainingAnnotation) {
		return false, nil
	}
	return u.r.hooks.DrainsBeforeUpdate(ctx, u.m.Namespace)
}

// makeRoom cordons and drains the node, and returns the reason why the drain waits. It leaves a node alone if another
// host has joined under the name of the Machine's node.
func (u *updateScope) makeRoom(ctx context.Context) (string, error) {
	node := &corev1.Node{}
	err := u.r.server.Get(ctx, client.ObjectKey{Name: u.status.NodeRef.Name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil // there is none to be drained
	case err != nil:
		return "", fmt.Errorf("get Node %s: %w", u.status.NodeRef.Name, err)
	case deletion.OwnershipClusterAPI(node, u.m) != deletion.OwnNode:
		return fmt.Sprintf("neither its providerID nor its annotations identify it as the node of the Machine; "+
			"annotate the Machine with %s to update "+
			"without a drain", clusterv1.ExcludeNodeDrainingAnnotation), nil
	}
	return u.drainForUpdate(ctx, node)
}

// drainForUpdate cordons a node, evicts its pods by the drain rules, and returns the remaining ones.
func (u *updateScope) drainForUpdate(ctx context.Context, node *corev1.Node) (string, error) {
	if !node.Spec.Unschedulable {
		base := node.DeepCopy()
		node.Spec.Unschedulable = true
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, annotation.CordonedForUpdate, u.fullName())
		if err := patch.WithLock(ctx, u.r.client, node, base); err != nil {
			return "", fmt.Errorf("cordon Node %s: %w", node.Name, err)
		}
	}
	rules, err := u.r.podRules(ctx, u.m, u.cluster)
	if err != nil {
		return "", err
	}
	left, err := drain.Evict(ctx, u.r.kubernetes, node, rules)
	u.drainedNode, u.isDrained = node, err == nil && len(left) == 0
	return strings.Join(bullets(left), "; "), err
}

// reportNode reports the update in the conditions of the Node. An update does not wait for them, but its end does: a
// Node must not stay marked as drained.
func (u *updateScope) reportNode(ctx context.Context) error {
	node, wanted := u.node.object, drain.Ended
	isUpdating := rolloutrules.IsUpdating(u.m)
	switch {
	case !isUpdating:
	case metav1.HasAnnotation(u.m.ObjectMeta, annotation.UpdateBegun): // the Node stays drained
		wanted = drain.Conditions{
			corev1.NodeMaintenancePlanned: false, corev1.NodeMaintenanceInProgress: true,
			corev1.NodeDrainInProgress: false,
		}
	default:
		wanted = drain.Conditions{corev1.NodeMaintenancePlanned: true}
	}
	if isUpdating && u.drainedNode != nil {
		node = u.drainedNode
		wanted[corev1.NodeDrainInProgress], wanted[corev1.NodeDrained] = !u.isDrained, u.isDrained
	}
	if node == nil {
		return nil
	}
	err := drain.WriteConditions(ctx, u.r.kubernetes, node,
		drain.Report{Reason: drain.MachineUpdate, Machine: u.fullName(), Conditions: wanted})
	if err != nil && isUpdating {
		ctrl.LoggerFrom(ctx).Error(err, "the update continues")
		return nil
	}
	return err
}

// isCordonedHere reports whether the node was cordoned for an update of the Machine.
func (u *updateScope) isCordonedHere() bool {
	return u.node.object != nil && u.node.object.Annotations[annotation.CordonedForUpdate] == u.fullName()
}

// uncordon uncordons the node, if it was cordoned for the update.
func (u *updateScope) uncordon(ctx context.Context) error {
	if !u.isCordonedHere() {
		return nil
	}
	base := u.node.object.DeepCopy()
	u.node.object.Spec.Unschedulable = false
	delete(u.node.object.Annotations, annotation.CordonedForUpdate)
	if err := patch.WithLock(ctx, u.r.client, u.node.object, base); err != nil {
		return fmt.Errorf("uncordon Node %s: %w", u.node.object.Name, client.IgnoreNotFound(err))
	}
	return nil
}

// fullName names the Machine.
func (u *updateScope) fullName() string { return u.m.Namespace + "/" + u.m.Name }
