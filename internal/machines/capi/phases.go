package capi

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/machines/patch"
)

// phases are the phases of a deletion in their order. Each reconciliation begins with the first one, so a late hook
// returns a Machine to its stage. Nothing is recorded as done: pods and volumes are checked again until the wait for
// pre-terminate hooks has begun. Pre-drain hooks hold Machines that are excluded from draining too. Reasons and
// messages are upstream's.
var phases = []deletion.Phase[*deletionScope]{
	(*deletionScope).awaitPreDrainHooks,
	(*deletionScope).awaitKnownInfrastructure,
	(*deletionScope).drainNode,
	(*deletionScope).awaitDetachedVolumes,
	(*deletionScope).awaitPreTerminateHooks,
	(*deletionScope).deleteInfrastructure,
	(*deletionScope).deleteBootstrap,
	(*deletionScope).deleteNode,
	(*deletionScope).release,
}

const (
	// nodeChecks is the interval at which remaining pods and volumes are checked.
	nodeChecks = 20 * time.Second
	// objectChecks is the interval at which an object is checked during its deletion, besides watching it.
	objectChecks = 30 * time.Second
)

func (d *deletionScope) awaitPreDrainHooks(ctx context.Context) (*deletion.Wait, error) {
	if d.nodeKept != "" {
		return nil, nil
	}
	return d.awaitHooks(ctx, clusterv1.PreDrainDeleteHookAnnotationPrefix, deletion.Wait{
		Stage: deletion.BeforeDrain, Reason: clusterv1.MachineDeletingWaitingForPreDrainHookReason,
		Message: "Waiting for pre-drain hooks to succeed",
	})
}

func (d *deletionScope) awaitPreTerminateHooks(ctx context.Context) (*deletion.Wait, error) {
	return d.awaitHooks(ctx, clusterv1.PreTerminateDeleteHookAnnotationPrefix, deletion.Wait{
		Stage: deletion.BeforeTerminate, Reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason,
		Message: "Waiting for pre-terminate hooks to succeed",
	})
}

// awaitHooks waits while there are hooks with a prefix.
func (d *deletionScope) awaitHooks(ctx context.Context, prefix string, wait deletion.Wait) (*deletion.Wait, error) {
	hooks := deletion.HooksClusterAPI(d.m, prefix)
	if len(hooks) == 0 {
		return nil, nil
	}
	wait.Message += fmt.Sprintf(" (hooks: %s)", strings.Join(hooks, ","))
	d.setStart(wait.Stage)
	return &wait, d.writeStart(ctx, &wait)
}

// awaitKnownInfrastructure waits until it is known whether the infrastructure exists: unreadable infrastructure would
// be mistaken for deleted one, and the Node would not be drained.
func (d *deletionScope) awaitKnownInfrastructure(context.Context) (*deletion.Wait, error) {
	if d.infrastructure.problem == nil {
		return nil, nil
	}
	return unreadableObject(deletion.Terminating, d.m.Spec.InfrastructureRef, d.infrastructure.problem), nil
}

// drainNode cordons the Node, evicts its pods, and waits until they have left.
func (d *deletionScope) drainNode(ctx context.Context) (*deletion.Wait, error) {
	if d.leavesNode() || metav1.HasAnnotation(d.m.ObjectMeta, clusterv1.ExcludeNodeDrainingAnnotation) ||
		d.hasTimedOut(deletion.Draining) {
		return nil, nil
	}
	start := d.setStart(deletion.Draining)
	wait := &deletion.Wait{
		Stage: deletion.Draining, Reason: clusterv1.MachineDeletingDrainingNodeReason,
		Message: fmt.Sprintf("Drain not completed yet (started at %s):", start.UTC().Format(time.RFC3339)),
	}
	if err := d.writeStart(ctx, wait); err != nil {
		return nil, err
	}
	left, err := d.evict(ctx)
	switch {
	case err != nil:
		d.failure = err
		wait.Message = "Error draining Node, please check controller logs for errors"
		d.setDrainingCondition(wait)
		d.r.record(d.m, corev1.EventTypeWarning, "FailedDrainNode",
			fmt.Sprintf("error draining Machine's node %q: %v", d.status.NodeRef.Name, err))
		return wait, nil
	case len(left) > 0:
		wait.Message, wait.After = wait.Message+"\n"+strings.Join(left, "\n"), nodeChecks
		d.setDrainingCondition(wait)
		return wait, nil
	}
	d.setLegacy(clusterv1.DrainingSucceededV1Beta1Condition, legacyTrue)
	d.r.record(d.m, corev1.EventTypeNormal, "SuccessfulDrainNode",
		fmt.Sprintf("success draining Machine's node %q", d.status.NodeRef.Name))
	return nil, nil
}

// evict evicts the pods of the Node by its drain rules, and returns the holds of the remaining ones.
func (d *deletionScope) evict(ctx context.Context) ([]string, error) {
	if d.node.isGone {
		return nil, nil
	}
	if err := drain.Cordon(ctx, d.r.kubernetes, d.node.object); err != nil {
		return nil, err
	}
	rules, err := d.r.podRules(ctx, d.m, d.cluster)
	if err != nil {
		return nil, err
	}
	left, err := drain.Evict(ctx, d.r.kubernetes, d.node.object, rules)
	return bullets(left), err
}

// setDrainingCondition reports a drain that waits: tools read this condition of v1beta1.
func (d *deletionScope) setDrainingCondition(wait *deletion.Wait) {
	draining := legacyFalse(clusterv1.DrainingV1Beta1Reason, clusterv1.ConditionSeverityInfo, wait.Message)
	if d.failure != nil {
		draining = legacyFalse(clusterv1.DrainingFailedV1Beta1Reason, clusterv1.ConditionSeverityWarning,
			d.failure.Error())
	}
	d.setLegacy(clusterv1.DrainingSucceededV1Beta1Condition, draining)
}

// awaitDetachedVolumes waits until the volumes of the Node are detached. Those of an unreachable Node never are.
func (d *deletionScope) awaitDetachedVolumes(ctx context.Context) (*deletion.Wait, error) {
	if d.leavesNode() || metav1.HasAnnotation(d.m.ObjectMeta, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation) ||
		d.hasTimedOut(deletion.DetachingVolumes) {
		return nil, nil
	}
	start := d.setStart(deletion.DetachingVolumes)
	wait := &deletion.Wait{
		Stage: deletion.DetachingVolumes, Reason: clusterv1.MachineDeletingWaitingForVolumeDetachReason,
		Message: fmt.Sprintf("Waiting for Node volumes to be detached (started at %s)",
			start.UTC().Format(time.RFC3339)),
	}
	if err := d.writeStart(ctx, wait); err != nil {
		return nil, err
	}
	left, err := d.attachedVolumes(ctx)
	switch {
	case err != nil:
		d.failure = err
		wait.Message = "Error waiting for volumes to be detached from Node, please check controller logs for errors"
		d.r.record(d.m, corev1.EventTypeWarning, "FailedWaitForVolumeDetach",
			fmt.Sprintf("error waiting for node volumes detaching, Machine's node %q: %v", d.status.NodeRef.Name, err))
		return wait, nil
	case len(left) > 0:
		wait.Message, wait.After = wait.Message+"\n"+strings.Join(left, "\n"), nodeChecks
		return wait, nil
	}
	d.setLegacy(clusterv1.VolumeDetachSucceededV1Beta1Condition, legacyTrue)
	d.r.record(d.m, corev1.EventTypeNormal, "NodeVolumesDetached",
		fmt.Sprintf("success waiting for node volumes detaching Machine's node %q", d.status.NodeRef.Name))
	return nil, nil
}

func (d *deletionScope) deleteInfrastructure(ctx context.Context) (*deletion.Wait, error) {
	return d.deleteObject(ctx, &d.infrastructure, d.m.Spec.InfrastructureRef, deletion.Wait{
		Stage: deletion.Terminating, Reason: clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason,
	})
}

func (d *deletionScope) deleteBootstrap(ctx context.Context) (*deletion.Wait, error) {
	return d.deleteObject(ctx, &d.bootstrap, d.m.Spec.Bootstrap.ConfigRef, deletion.Wait{
		Stage: deletion.RemovingConfig, Reason: clusterv1.MachineDeletingWaitingForBootstrapDeletionReason,
	})
}

// deleteObject deletes an object that the Machine refers to, and waits until the object no longer exists.
func (d *deletionScope) deleteObject(ctx context.Context, object *referencedObject,
	reference contract.Reference, wait deletion.Wait) (*deletion.Wait, error) {
	if object.object != nil && object.object.GetDeletionTimestamp() == nil {
		err := d.r.references.Delete(ctx, object.object)
		if err == nil {
			*object = d.r.readReference(ctx, d.m, reference)
			err = object.problem
		}
		if err != nil {
			d.failure = err
			wait.Reason = clusterv1.MachineDeletingInternalErrorReason
			wait.Message = fmt.Sprintf("Failed to delete %s, please check controller logs for errors", reference.Kind)
			return &wait, nil
		}
	}
	switch {
	case object.problem != nil:
		return unreadableObject(wait.Stage, reference, object.problem), nil
	case object.object == nil:
		return nil, nil
	}
	wait.Message, wait.After = fmt.Sprintf("Waiting for %s to be deleted", reference.Kind), objectChecks
	return &wait, nil
}

func unreadableObject(stage deletion.Stage, ref contract.Reference, problem error) *deletion.Wait {
	return &deletion.Wait{
		Stage: stage, Reason: clusterv1.MachineDeletingInternalErrorReason,
		Message: fmt.Sprintf("Failed to read %s: %v", ref.Kind, problem),
	}
}

// deleteNode deletes the Node. If the deletion fails, it is retried until its timeout ends.
func (d *deletionScope) deleteNode(ctx context.Context) (*deletion.Wait, error) {
	if d.nodeKept != "" || d.status.NodeRef.Name == "" || d.node.isGone {
		return nil, nil
	}
	uid := d.node.object.UID
	err := d.r.client.Delete(ctx, d.node.object, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) == nil {
		d.node.isDeletionRequested = true
		return nil, nil
	}
	d.failure, d.node.refusal = err, err.Error()
	d.setLegacy(clusterv1.MachineNodeHealthyV1Beta1Condition,
		legacyFalse(clusterv1.DeletionFailedV1Beta1Reason, clusterv1.ConditionSeverityWarning, ""))
	d.r.record(d.m, corev1.EventTypeWarning, "FailedDeleteNode", fmt.Sprintf("error deleting Machine's Node: %v", err))
	if d.hasTimedOut(deletion.RemovingNode) {
		return nil, nil
	}
	return &deletion.Wait{
		Stage: deletion.RemovingNode, Reason: clusterv1.MachineDeletingDeletingNodeReason,
		Message: "Error deleting Node, please check controller logs for errors",
	}, nil
}

// release writes that the deletion is complete, and removes the finalizer. Both writes fail if the Machine has changed
// since it was read, so that neither can miss a hook.
func (d *deletionScope) release(ctx context.Context) (*deletion.Wait, error) {
	d.report(deletion.Wait{
		Stage: deletion.Completed, Reason: clusterv1.MachineDeletingDeletionCompletedReason,
		Message: "Deletion completed",
	})
	d.setConditions()
	if err := d.r.writeStatus(ctx, d.machineState); err != nil {
		return nil, err
	}
	return nil, patch.RemoveFinalizer(ctx, d.r.client, d.m, clusterv1.MachineFinalizer)
}

// leavesNode reports whether the Node is no longer drained, nor its volumes waited for. Once the wait for pre-terminate
// hooks has begun, the owners of the hooks may remove resources that pods need to terminate.
func (d *deletionScope) leavesNode() bool {
	infrastructure := d.infrastructure.object
	return d.nodeKept != "" || !d.start(deletion.BeforeTerminate).IsZero() ||
		infrastructure == nil || infrastructure.GetDeletionTimestamp() != nil
}
