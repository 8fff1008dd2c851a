package capi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/machinetemplate"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/queue"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
)

// finish ends an update after the extension is done, and returns when to reconcile again.
func (u *updateScope) finish(ctx context.Context) (time.Duration, error) {
	ended := u.m.DeepCopy()
	err := u.end(ctx, ended)
	if apierrors.IsConflict(err) {
		// The Machine was written during the call. If only its status was, the extension need not be called again.
		return queue.ConflictPause,
			retry.RetryOnConflict(retry.DefaultBackoff, func() error { return u.endNewest(ctx) })
	}
	if err != nil {
		return 0, err
	}
	u.m = ended
	u.setUpdating("", "")
	return u.cleanUp(ctx)
}

// end removes the annotations from the Machine in one write, so that the update can't end halfway. From then on, no
// extension is called. The annotations of other objects are removed by this reconciliation or a later one.
func (u *updateScope) end(ctx context.Context, m *clusterv1.Machine) error {
	base := m.DeepCopy()
	delete(m.Annotations, clusterv1.UpdateInProgressAnnotation)
	dropHook(m)
	if err := patch.WithLock(ctx, u.r.client, m, base); err != nil {
		return fmt.Errorf("end the update in place: %w", err)
	}
	u.r.events.Events.Eventf(m, nil, corev1.EventTypeNormal, "SuccessfulInPlaceUpdate", "Reconcile",
		"the Machine has been updated in place")
	return nil
}

// endNewest ends the update on the Machine as the API server has it, unless it is deleted or its desired state has
// changed.
func (u *updateScope) endNewest(ctx context.Context) error {
	newest := &clusterv1.Machine{}
	if err := u.r.server.Get(ctx, client.ObjectKeyFromObject(u.m), newest); err != nil {
		return client.IgnoreNotFound(err)
	}
	isSame := newest.UID == u.m.UID && newest.Generation == u.m.Generation && newest.DeletionTimestamp.IsZero()
	if !isSame || !rolloutrules.IsUpdating(newest) || !machinetemplate.IsTriggered(newest) {
		return nil
	}
	return u.end(ctx, newest)
}

// cleanUp removes the annotations of an update that has ended, or that a user has cancelled by removing its annotation
// from the Machine.
func (u *updateScope) cleanUp(ctx context.Context) (time.Duration, error) {
	u.r.updates.known.Delete(u.m.UID)
	base := u.m.DeepCopy()
	dropHook(u.m)
	if err := u.r.patch(ctx, u.m, base, "remove what an update in place has left"); err != nil {
		return 0, err
	}
	if !u.infrastructure.isAnnotated() && !u.bootstrap.isAnnotated() && !u.isCordonedHere() {
		return 0, nil
	}
	// A cached Machine may lack the annotation of an update that has begun, to which those of the other objects belong.
	if isCurrent, err := u.isCurrent(ctx); err != nil || !isCurrent {
		return queue.ConflictPause, err
	}
	return 0, errors.Join(u.dropAnnotation(ctx, u.infrastructure), u.dropAnnotation(ctx, u.bootstrap), u.uncordon(ctx))
}

// dropAnnotation removes the annotation of an update from an object that the Machine refers to. The write fails if the
// object has changed since it was read: another update may have begun.
func (u *updateScope) dropAnnotation(ctx context.Context, object referencedObject) error {
	if !object.isAnnotated() {
		return nil
	}
	base := object.object.DeepCopy()
	annotations := object.object.GetAnnotations()
	delete(annotations, clusterv1.UpdateInProgressAnnotation)
	object.object.SetAnnotations(annotations)
	if err := patch.WithLock(ctx, u.r.client, object.object.Unstructured, base); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the annotation of the update in place from %s: %w", object.object, err)
	}
	return nil
}

// pendingHooks returns the runtime hooks that must be called for a Machine.
func pendingHooks(m *clusterv1.Machine) []string {
	return strings.Split(m.Annotations[runtimev1.PendingHooksAnnotation], ",")
}

// dropHook removes the hook, and our annotations, from a Machine. Other hooks stay, and so does the request of a
// control plane for an update that has no hook yet.
func dropHook(m *clusterv1.Machine) {
	delete(m.Annotations, annotation.UpdateBegun)
	hooks := pendingHooks(m)
	left := slices.DeleteFunc(slices.Clone(hooks), func(hook string) bool { return hook == runtimehook.UpdateMachine })
	if len(left) == len(hooks) {
		return
	}
	rolloutrules.DropRequest(m)
	if len(left) == 0 {
		delete(m.Annotations, runtimev1.PendingHooksAnnotation)
		return
	}
	m.Annotations[runtimev1.PendingHooksAnnotation] = strings.Join(left, ",")
}

// isAnnotated reports whether the object is marked for an update.
func (r referencedObject) isAnnotated() bool {
	if r.object == nil {
		return false
	}
	_, isAnnotated := r.object.GetAnnotations()[clusterv1.UpdateInProgressAnnotation]
	return isAnnotated
}

// unstructured returns the object; nil if there is none.
func (r referencedObject) unstructured() *unstructured.Unstructured {
	if r.object == nil {
		return nil
	}
	return r.object.Unstructured
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
