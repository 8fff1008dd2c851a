package capi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
)

// A deletionPass is one pass over a Machine that is being deleted. Nothing of it outlives the pass.
type deletionPass struct {
	*machinePass
	keeps            string       // why the Node is kept; empty if it is deleted
	liveNode         *corev1.Node // the Node as the API server has it; nil if it is gone
	drain            deletion.Drain
	volumes          deletion.Volumes
	infraProblem     string
	bootstrapProblem string
	failure          error // makes the queue back off
}

// delete does the steps of a deletion until one has to wait, or the finalizer is removed. It returns when to reconcile again.
func (d *deletionPass) delete(ctx context.Context) (time.Duration, error) {
	d.step = deletion.DeletionStep{Reason: clusterv1.MachineDeletingReason, Message: "Deletion started"}
	// A failed read is retried, whatever the deletion waits for.
	d.failure = errors.Join(d.infrastructure.problem, d.bootstrap.problem)
	if err := d.gather(ctx); err != nil {
		d.step.Reason, d.step.Message = clusterv1.MachineDeletingInternalErrorReason, "Please check controller logs for errors"
		return 0, err
	}
	for {
		d.step = deletion.ClusterAPI.Next(d.snapshot())
		switch d.step.Action {
		case deletion.Wait:
			d.setWaitConditions()
			if d.step.After == 0 {
				return 0, d.failure
			}
			return d.bounded(d.step.After), nil
		case deletion.Release:
			d.setHookConditions()
			return 0, d.release(ctx)
		}
		if err := d.perform(ctx); err != nil {
			return 0, err
		}
	}
}

// perform executes the action of the step.
func (d *deletionPass) perform(ctx context.Context) error {
	switch d.step.Action {
	case deletion.RecordStart:
		return d.recordStart(ctx)
	case deletion.Cordon:
		err := drain.Cordon(ctx, d.kubernetes, d.liveNode)
		d.drainFailed(err)
		d.liveNode.Spec.Unschedulable = err == nil
	case deletion.Evict:
		d.evict(ctx)
	case deletion.RecordDrained:
		d.drain.IsDone = true
		d.setLegacy(clusterv1.DrainingSucceededV1Beta1Condition, legacyTrue)
		d.recordEvent(d.m, corev1.EventTypeNormal, "SuccessfulDrainNode", fmt.Sprintf("success draining Machine's node %q", d.status.NodeRef.Name))
	case deletion.LookAtVolumes:
		d.lookAtVolumes(ctx)
	case deletion.RecordDetached:
		d.volumes.IsDone = true
		d.setLegacy(clusterv1.VolumeDetachSucceededV1Beta1Condition, legacyTrue)
		d.recordEvent(d.m, corev1.EventTypeNormal, "NodeVolumesDetached",
			fmt.Sprintf("success waiting for node volumes detaching Machine's node %q", d.status.NodeRef.Name))
	case deletion.DeleteInfrastructure:
		d.infraProblem = d.requestDeletion(ctx, &d.infrastructure, d.m.Spec.InfrastructureRef)
	case deletion.DeleteBootstrap:
		d.bootstrapProblem = d.requestDeletion(ctx, &d.bootstrap, d.m.Spec.Bootstrap.ConfigRef)
	case deletion.DeleteNode:
		d.deleteNode(ctx)
	default:
		return fmt.Errorf("delete the Machine: no way to %s", d.step.Action)
	}
	return nil
}

// recordStart writes the start time of a stage before its first action.
func (d *deletionPass) recordStart(ctx context.Context) error {
	if d.status.Deletion == nil {
		d.status.Deletion = &clusterv1.MachineDeletionStatus{}
	}
	*startOf(d.status.Deletion, d.step.Stage) = metav1.NewTime(d.time.UTC().Truncate(time.Second))
	d.step = deletion.ClusterAPI.Next(d.snapshot()) // with the time in its message
	d.setStageCondition()
	d.setConditions()
	return d.writeStatus(ctx)
}

// startOf returns the field that has the start of a stage.
func startOf(status *clusterv1.MachineDeletionStatus, stage deletion.DeletionStage) *metav1.Time {
	switch stage {
	case deletion.BeforeDrain:
		return &status.WaitForPreDrainHookStartTime
	case deletion.Draining:
		return &status.NodeDrainStartTime
	case deletion.DetachingVolumes:
		return &status.WaitForNodeVolumeDetachStartTime
	default:
		return &status.WaitForPreTerminateHookStartTime
	}
}

// evict evicts the pods of the Node by its drain rules, and records the remaining ones.
func (d *deletionPass) evict(ctx context.Context) {
	rules, err := d.podRules(ctx)
	var left []drain.HeldPod
	if err == nil {
		left, err = drain.EvictByRules(ctx, d.kubernetes, d.liveNode, rules)
	}
	if err != nil {
		d.drainFailed(err)
		return
	}
	d.drain.HasLooked, d.drain.Left = true, bullets(left)
}

// drainFailed records why the Node could not be drained.
func (d *deletionPass) drainFailed(err error) {
	if err == nil {
		return
	}
	d.failure, d.drain.Problem = err, err.Error()
	d.recordEvent(d.m, corev1.EventTypeWarning, "FailedDrainNode", fmt.Sprintf("error draining Machine's node %q: %v", d.status.NodeRef.Name, err))
}

// requestDeletion deletes an object, checks whether it is gone, and returns a message if that fails.
func (d *deletionPass) requestDeletion(ctx context.Context, object *referenced, to clusterv1.ContractVersionedObjectReference) string {
	err := d.references.Delete(ctx, object.object)
	if err == nil {
		*object = d.lookAt(ctx, to)
		object.isDeletionRequested = true
		err = object.problem
	}
	if err == nil {
		return ""
	}
	d.failure = err
	return fmt.Sprintf("Failed to delete %s, please check controller logs for errors", to.Kind)
}

func (d *deletionPass) deleteNode(ctx context.Context) {
	uid := d.liveNode.UID
	err := d.client.Delete(ctx, d.liveNode, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) == nil {
		d.isNodeDeletionRequested = true
		return
	}
	d.failure, d.nodeRefusal = err, err.Error()
	d.setLegacy(clusterv1.MachineNodeHealthyV1Beta1Condition, legacyFalse(clusterv1.DeletionFailedV1Beta1Reason, clusterv1.ConditionSeverityWarning, ""))
	d.recordEvent(d.m, corev1.EventTypeWarning, "FailedDeleteNode", fmt.Sprintf("error deleting Machine's Node: %v", err))
}

// release writes that the deletion is complete, and removes the finalizer. Both writes fail if the Machine has changed
// since it was read, so that neither can miss a hook.
func (d *deletionPass) release(ctx context.Context) error {
	d.setConditions()
	if err := d.writeStatus(ctx); err != nil {
		return err
	}
	base := d.m.DeepCopy()
	controllerutil.RemoveFinalizer(d.m, clusterv1.MachineFinalizer)
	if err := d.client.Patch(ctx, d.m, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("remove the finalizer of the Machine: %w", err)
	}
	return nil
}

// hooksOf returns the annotations that are hooks: all keys with the prefix, with or without a slash behind it.
func hooksOf(m *clusterv1.Machine, prefix string) []deletion.DeletionHook {
	var hooks []deletion.DeletionHook
	for key, owner := range m.Annotations {
		if strings.HasPrefix(key, prefix) {
			hooks = append(hooks, deletion.DeletionHook{Name: key, Owner: owner})
		}
	}
	slices.SortFunc(hooks, func(a, b deletion.DeletionHook) int { return strings.Compare(a.Name, b.Name) })
	return hooks
}
