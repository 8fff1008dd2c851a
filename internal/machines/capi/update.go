package capi

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/machinetemplate"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/queue"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// The beginnings of messages about an update, in Cluster API's words; the extension's message follows.
const updateMessage, hookFailed = "In-place update in progress", "UpdateMachine hook failed: "

// beginPause is the interval at which the conditions for the first call of an extension are checked: pods have left,
// and the quorum guard permits the update.
const beginPause = 20 * time.Second

// busyPause is the pause before a retry while half of the workers wait for extensions.
const busyPause = time.Second

const (
	// longestPause is the longest pause between two calls of an extension, whatever the extension requests. Only a call
	// shows whether an extension has recovered, and until then it holds the Machine.
	longestPause = 10 * time.Minute
	// notablePause is the shortest pause whose end is reported in the condition.
	notablePause = time.Minute
)

// An updateScope is one reconciliation of an update in place: the owner of a Machine has written the desired state into
// the Machine, its infrastructure and its bootstrap config. The extension that does the update is called until it
// reports that it is done.
type updateScope struct {
	r *Reconciler
	*machineState
	drainedNode *corev1.Node // the Node as read for its drain; nil if this reconciliation evicts no pods
	isDrained   bool         // whether all pods have left drainedNode
}

// reconcile does the next steps of an update in place, and reports them in the conditions of the Node.
func (u *updateScope) reconcile(ctx context.Context) (time.Duration, error) {
	after, err := u.update(ctx)
	if err == nil {
		err = u.reportNode(ctx)
	}
	return after, err
}

// update does the next steps of an update in place, and returns when to reconcile again. A failure of the extension is
// not an error of the reconciliation: the condition reports it, and the call is retried at the returned time.
func (u *updateScope) update(ctx context.Context) (time.Duration, error) {
	if !rolloutrules.IsUpdating(u.m) {
		return u.cleanUp(ctx)
	}
	u.setUpdating(clusterv1.MachineInPlaceUpdatingReason, updateMessage)
	if !machinetemplate.IsTriggered(u.m) { // its owner has not written the whole desired state yet
		return 0, nil
	}
	if u.infrastructure.problem != nil || u.bootstrap.problem != nil { // returned as an error
		u.keepCondition()
		return 0, nil
	}
	if u.infrastructure.isGone {
		u.setUpdating(clusterv1.MachineInPlaceUpdateFailedReason,
			"In-place update not possible: InfraMachine not found")
		return 0, nil
	}
	if missing := u.missingReference(); missing != "" {
		u.setUpdating(clusterv1.MachineInPlaceUpdatingReason, updateMessage+": waiting for "+missing)
		return 0, nil
	}
	if last, wait := u.r.updates.last(u.m.UID, u.r.options.Now()); wait > 0 {
		u.setUpdating(last.reason, last.message)
		return u.r.bounded(wait), nil
	}
	if !u.r.updates.running.TryAcquire(1) {
		u.keepCondition()
		return u.r.bounded(busyPause), nil
	}
	defer u.r.updates.running.Release(1)
	if isCurrent, err := u.isCurrent(ctx); err != nil || !isCurrent {
		u.keepCondition()
		return queue.ConflictPause, err
	}
	return u.proceed(ctx)
}

// proceed drains the Node and gets the permission for the first call of the extension, and then calls it.
func (u *updateScope) proceed(ctx context.Context) (time.Duration, error) {
	if metav1.HasAnnotation(u.m.ObjectMeta, annotation.UpdateBegun) {
		return u.call(ctx)
	}
	isDrained, err := u.isDrainRequested(ctx)
	if err != nil {
		return u.recordFailure(ctx, hookFailed+err.Error()), nil
	}
	if isDrained {
		left, err := u.makeRoom(ctx)
		switch {
		case apierrors.IsConflict(err):
			u.keepCondition()
			return 0, err
		case err != nil:
			return u.recordFailure(ctx, fmt.Sprintf("Draining Node %s for the in-place update failed: %v",
				u.status.NodeRef.Name, err)), nil
		case left != "":
			u.setUpdating(clusterv1.MachineInPlaceUpdatingReason,
				updateMessage+": draining Node "+u.status.NodeRef.Name+": "+left)
			return u.r.bounded(beginPause), nil
		}
	}
	if isBegun, err := u.begin(ctx); err != nil || !isBegun {
		return u.r.bounded(beginPause), err
	}
	return u.call(ctx)
}

// begin marks the Machine as begun, and reports whether the extension can be called. From its first call on, a member
// of etcd on the Machine may stop. So the quorum guard must permit the call: its permission for the mark of the control
// plane may be hours old. A begun update must end: the guard is not asked again, no further pods are evicted,
// and a guard installed later, or a drain requested later, does not stop it.
func (u *updateScope) begin(ctx context.Context) (bool, error) {
	base, now := u.m.DeepCopy(), u.r.options.Now()
	isBegun := rolloutrules.IsPermitted(u.m, now)
	if isBegun {
		rolloutrules.DropRequest(u.m)
		metav1.SetMetaDataAnnotation(&u.m.ObjectMeta, annotation.UpdateBegun, "")
	} else {
		message := updateMessage + ": waiting for the etcd quorum guard to permit it"
		if reason := u.m.Annotations[annotation.UpdateHeld]; reason != "" {
			message += ": " + printable.Line(reason)
		}
		u.setUpdating(clusterv1.MachineInPlaceUpdatingReason, message)
		if !rolloutrules.IsRequested(u.m, now) {
			rolloutrules.Request(u.m, now)
		}
	}
	err := u.r.patch(ctx, u.m, base, "begin the update in place")
	if err != nil {
		u.keepCondition()
	}
	return isBegun && err == nil, err
}

// call calls the extension, and ends the update if it is done.
func (u *updateScope) call(ctx context.Context) (time.Duration, error) {
	progress, err := u.r.hooks.UpdateMachine(ctx, u.request())
	switch {
	case ctx.Err() != nil: // the controller stops
		u.keepCondition()
		return 0, ctx.Err()
	case err != nil:
		return u.recordFailure(ctx, hookFailed+err.Error()), nil
	case !progress.Done:
		return u.reportProgress(progress), nil
	}
	u.keepCondition() // the condition is kept until the Machine is written
	return u.finish(ctx)
}

// request returns the request to the extension, with names, labels, annotations and specs.
func (u *updateScope) request() *hooksv1.UpdateMachineRequest {
	desired := runtimehook.NewMachineObjects(u.m, u.infrastructure.unstructured(), u.bootstrap.unstructured())
	return &hooksv1.UpdateMachineRequest{Desired: hooksv1.UpdateMachineRequestObjects(desired)}
}

// reportProgress sets the condition Updating while the extension is not done, and returns the time until its next call.
func (u *updateScope) reportProgress(progress runtimehook.Progress) time.Duration {
	message := updateMessage
	if progress.Message != "" {
		message += ": " + progress.Message
	}
	pause := min(progress.RetryAfter, longestPause)
	next := u.r.options.Now().Add(pause)
	switch nextCall := next.UTC().Format(time.RFC3339); {
	case progress.RetryAfter > pause:
		message += fmt.Sprintf("; the extension requested %.0f s, and is called again after %s, at %s",
			progress.RetryAfter.Seconds(), duration.ShortHumanDuration(pause), nextCall)
	case pause >= notablePause:
		message += "; the extension is called again at " + nextCall
	}
	u.setUpdating(clusterv1.MachineInPlaceUpdatingReason, message)
	u.r.updates.known.Store(u.m.UID, updateCall{next: next, reason: u.updateReason, message: message})
	return u.r.bounded(pause)
}

// recordFailure records why the update has failed, and returns the pause before the retry; pauses grow. Events in
// between do not shorten the pause: the condition UpToDate repeats the message, so that a new message triggers another
// reconciliation.
func (u *updateScope) recordFailure(ctx context.Context, message string) time.Duration {
	u.setUpdating(clusterv1.MachineInPlaceUpdateFailedReason, message)
	pause := u.r.updates.fail(u.m.UID, u.r.options.Now(), message)
	ctrl.LoggerFrom(ctx).Info("an update in place failed, and is tried again", "message", message, "after", pause)
	u.r.record(u.m, corev1.EventTypeWarning, "FailedInPlaceUpdate", message)
	return u.r.bounded(pause)
}

// isCurrent reports whether the Machine is unchanged and not deleted: a cached Machine may lack its deletion, or the
// end of the update.
func (u *updateScope) isCurrent(ctx context.Context) (bool, error) {
	newest := &clusterv1.Machine{}
	if err := u.r.server.Get(ctx, client.ObjectKeyFromObject(u.m), newest); err != nil {
		return false, fmt.Errorf("get the Machine before its update continues: %w", err)
	}
	return newest.UID == u.m.UID && newest.ResourceVersion == u.m.ResourceVersion, nil
}

// setUpdating sets the reason and the message of the condition Updating.
func (u *updateScope) setUpdating(reason, message string) {
	u.updateReason, u.updateText = reason, message
}

// keepCondition keeps the reason and the message of the condition Updating.
func (u *updateScope) keepCondition() {
	if reported := meta.FindStatusCondition(u.status.Conditions, clusterv1.MachineUpdatingCondition); reported != nil &&
		reported.Message != "" {
		u.setUpdating(reported.Reason, reported.Message)
	}
}

// missingReference returns the object or field that a triggered update waits for; empty if it can continue.
func (m *machineState) missingReference() string {
	infrastructure, config := m.m.Spec.InfrastructureRef, m.m.Spec.Bootstrap.ConfigRef
	initialization := m.status.Initialization
	switch {
	case !ptr.Deref(initialization.InfrastructureProvisioned, false):
		return fmt.Sprintf("%s %s to be provisioned", infrastructure.Kind, infrastructure.Name)
	case config.IsDefined() && !ptr.Deref(initialization.BootstrapDataSecretCreated, false):
		return fmt.Sprintf("%s %s to have its data", config.Kind, config.Name)
	case m.status.NodeRef.Name == "":
		return "the Node of the Machine"
	case !m.infrastructure.isAnnotated():
		return annotationOf(infrastructure)
	case config.IsDefined() && m.bootstrap.isGone:
		return fmt.Sprintf("%s %s, which does not exist", config.Kind, config.Name)
	case config.IsDefined() && !m.bootstrap.isAnnotated():
		return annotationOf(config)
	}
	return ""
}

// annotationOf describes the missing annotation of an object.
func annotationOf(ref contract.Reference) string {
	return fmt.Sprintf("the annotation %s of %s %s", clusterv1.UpdateInProgressAnnotation, ref.Kind, ref.Name)
}

// updateCalls are the last answers of extensions, by the UIDs of the Machines that they update. After a restart, the
// extension is called at once, as it is by Cluster API's own controller.
type updateCalls struct {
	known sync.Map
	// running bounds the calls: at most half of the workers wait for extensions, so that deletions continue while
	// extensions hang.
	running *semaphore.Weighted
}

// An updateCall is the answer of an extension, and when it may be called again.
type updateCall struct {
	next            time.Time
	failures        int // consecutive failures
	reason, message string
}

// last returns the last call of a Machine, and how long it is until the next one.
func (c *updateCalls) last(machine types.UID, now time.Time) (updateCall, time.Duration) {
	known, _ := c.known.Load(machine)
	call, _ := known.(updateCall)
	return call, call.next.Sub(now)
}

// fail records a failed call, and returns the pause before the next one, which doubles with each failure.
func (c *updateCalls) fail(machine types.UID, now time.Time, message string) time.Duration {
	last, _ := c.last(machine, now)
	pause := queue.RetrySoon
	for range last.failures {
		pause = min(2*pause, queue.RetrySeldom)
	}
	c.known.Store(machine, updateCall{
		next: now.Add(pause), failures: min(last.failures+1, 10), reason: clusterv1.MachineInPlaceUpdateFailedReason,
		message: message,
	})
	return pause
}

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
