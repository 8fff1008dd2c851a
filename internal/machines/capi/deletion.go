package capi

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
)

// defaultNodeDeletionTimeout is the default that Cluster API's admission sets, in seconds.
const defaultNodeDeletionTimeout = 10

// This file has the scope in which the phases of a deletion run (phases.go), and the times that it records.

// A deletionScope is one reconciliation of a deletion. It keeps nothing in memory: the next one resumes from the
// Machine.
type deletionScope struct {
	r *Reconciler
	*machineState
	nodeKept string // the reason why the Node is neither drained nor deleted; empty if there is none
	failure  error  // makes the queue back off
}

// delete runs the phases of a deletion until one waits, or the finalizer is removed. It returns when to reconcile
// again.
func (d *deletionScope) delete(ctx context.Context) (time.Duration, error) {
	d.deletingReason, d.deletingText = clusterv1.MachineDeletingReason, "Deletion started"
	// A failed read is retried, whatever the deletion waits for.
	d.failure = errors.Join(d.infrastructure.problem, d.bootstrap.problem)
	if err := d.gather(ctx); err != nil {
		d.deletingReason, d.deletingText = clusterv1.MachineDeletingInternalErrorReason,
			"Please check controller logs for errors"
		return 0, err
	}
	wait, err := deletion.Run(ctx, d, phases)
	if err != nil || wait == nil {
		return 0, err
	}
	d.report(*wait)
	if !d.node.isGone {
		drained := d.legacy(clusterv1.DrainingSucceededV1Beta1Condition)
		d.reportNode(ctx, drain.DeletionConditions(wait.Stage == deletion.Draining,
			drained != nil && drained.Status == corev1.ConditionTrue))
	}
	if wait.After == 0 {
		return 0, d.failure
	}
	return d.r.bounded(wait.After), nil
}

// gather decides whether the Node is drained and deleted, and reads the Node from the API server.
func (d *deletionScope) gather(ctx context.Context) error {
	var err error
	if d.nodeKept, err = d.nodeKeptReason(ctx); err != nil {
		return err
	}
	d.node.isGone = true
	if d.nodeKept != "" {
		d.r.record(d.m, corev1.EventTypeNormal, "NodeKept", "the Node is neither drained nor deleted: "+d.nodeKept)
		if d.node.object != nil {
			d.reportNode(ctx, drain.Ended)
		}
		return nil
	}
	if d.status.NodeRef.Name == "" { // it may have a Node, with pods
		return d.node.problem
	}
	node := &corev1.Node{}
	err = d.r.server.Get(ctx, client.ObjectKey{Name: d.status.NodeRef.Name}, node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get Node %s: %w", d.status.NodeRef.Name, err)
	}
	if deletion.OwnershipClusterAPI(node, d.m) == deletion.OwnNode {
		d.node.object, d.node.isGone = node, false
	}
	return nil
}

// reportNode reports the deletion in the conditions of the Node.
func (d *deletionScope) reportNode(ctx context.Context, wanted drain.Conditions) {
	if err := drain.WriteConditions(ctx, d.r.kubernetes, d.node.object, drain.Report{
		Reason: drain.MachineDeletion, Machine: client.ObjectKeyFromObject(d.m).String(), Conditions: wanted,
	}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "the deletion continues")
	}
}

// nodeKeptReason returns why the Node is kept; empty if it is drained and deleted. A failed read of the Node is not a
// reason to keep it.
func (d *deletionScope) nodeKeptReason(ctx context.Context) (string, error) {
	switch {
	case d.cluster.UID == "":
		return "the Cluster does not exist", nil
	case !d.cluster.DeletionTimestamp.IsZero():
		return "the Cluster is being deleted", nil
	case d.node.owner == openshiftGroup:
		return d.node.problem.Error(), nil
	case d.status.NodeRef.Name == "" && (d.node.problem == nil || d.node.owner != ""):
		return "the Machine has no Node", nil
	}
	if d.cluster.Spec.ControlPlaneRef.IsDefined() {
		controlPlane, err := d.r.references.Get(ctx, d.cluster.Spec.ControlPlaneRef, d.cluster.Namespace)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return "", fmt.Errorf("read the control plane of the Cluster: %w", err)
		case controlPlane.GetDeletionTimestamp() != nil:
			return "the control plane is being deleted", nil
		default:
			if isExternal, _, _ := unstructured.NestedBool(controlPlane.Object, "status",
				"externalManagedControlPlane"); isExternal {
				return "", nil
			}
		}
	}
	var machines clusterv1.MachineList
	if err := d.r.server.List(ctx, &machines, client.InNamespace(d.m.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: d.cluster.Name},
		client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return "", fmt.Errorf("list the Machines of the control plane: %w", err)
	}
	for i := range machines.Items {
		if machines.Items[i].DeletionTimestamp.IsZero() {
			return "", nil
		}
	}
	return "no Machine of the control plane would be left", nil
}

// setStart sets the start time of a stage, unless the stage has begun, and returns it.
func (d *deletionScope) setStart(stage deletion.Stage) metav1.Time {
	if d.status.Deletion == nil {
		d.status.Deletion = &clusterv1.MachineDeletionStatus{}
	}
	start := startOf(d.status.Deletion, stage)
	if start.IsZero() {
		*start = d.now()
	}
	return *start
}

// writeStart writes the start time and the wait of a stage, before the first action of the stage.
func (d *deletionScope) writeStart(ctx context.Context, wait *deletion.Wait) error {
	if written := d.m.Status.Deletion; written != nil && !startOf(written, wait.Stage).IsZero() {
		return nil
	}
	d.report(*wait)
	const info = clusterv1.ConditionSeverityInfo
	switch wait.Stage {
	case deletion.Draining:
		d.setLegacy(clusterv1.DrainingSucceededV1Beta1Condition,
			legacyFalse(clusterv1.DrainingV1Beta1Reason, info, "Draining the node before deletion"))
	case deletion.DetachingVolumes:
		d.setLegacy(clusterv1.VolumeDetachSucceededV1Beta1Condition,
			legacyFalse(clusterv1.WaitingForVolumeDetachV1Beta1Reason, info, "Waiting for node volumes to be detached"))
	}
	d.setConditions()
	return d.r.writeStatus(ctx, d.machineState)
}

// start returns the recorded start time of a stage; zero if it has not begun.
func (d *deletionScope) start(stage deletion.Stage) time.Time {
	switch {
	case stage == deletion.RemovingNode:
		return d.m.DeletionTimestamp.Time
	case d.status.Deletion == nil:
		return time.Time{}
	}
	return startOf(d.status.Deletion, stage).Time
}

// startOf returns the field that has the start of a stage.
func startOf(status *clusterv1.MachineDeletionStatus, stage deletion.Stage) *metav1.Time {
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

// hasTimedOut reports whether a stage has exceeded its timeout.
func (d *deletionScope) hasTimedOut(stage deletion.Stage) bool {
	return hasTimedOut(d.start(stage), timeoutOf(d.m, stage), d.time)
}

func hasTimedOut(start time.Time, timeout time.Duration, now time.Time) bool {
	return timeout > 0 && !start.IsZero() && !now.Before(start.Add(timeout))
}

// timeoutOf returns the timeout of a stage; zero means none.
func timeoutOf(m *clusterv1.Machine, stage deletion.Stage) time.Duration {
	var seconds int32
	switch stage {
	case deletion.Draining:
		seconds = ptr.Deref(m.Spec.Deletion.NodeDrainTimeoutSeconds, 0)
	case deletion.DetachingVolumes:
		seconds = ptr.Deref(m.Spec.Deletion.NodeVolumeDetachTimeoutSeconds, 0)
	case deletion.RemovingNode:
		seconds = ptr.Deref(m.Spec.Deletion.NodeDeletionTimeoutSeconds, defaultNodeDeletionTimeout)
	}
	return time.Duration(seconds) * time.Second
}

// report sets the condition Deleting to a wait, and the conditions of the hooks by its stage.
func (d *deletionScope) report(wait deletion.Wait) {
	d.deletingReason, d.deletingText = wait.Reason, wait.Message
	waiting := legacyFalse(clusterv1.WaitingExternalHookV1Beta1Reason, clusterv1.ConditionSeverityInfo, "")
	if d.nodeKept == "" {
		preDrain := legacyTrue
		if wait.Stage == deletion.BeforeDrain {
			preDrain = waiting
		}
		d.setLegacy(clusterv1.PreDrainDeleteHookSucceededV1Beta1Condition, preDrain)
	}
	switch wait.Stage {
	case deletion.BeforeTerminate:
		d.setLegacy(clusterv1.PreTerminateDeleteHookSucceededV1Beta1Condition, waiting)
	case deletion.Terminating, deletion.RemovingConfig, deletion.RemovingNode, deletion.Completed:
		if d.infrastructure.problem == nil {
			d.setLegacy(clusterv1.PreTerminateDeleteHookSucceededV1Beta1Condition, legacyTrue)
		}
	}
}
