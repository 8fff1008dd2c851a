package capi

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// defaultNodeDeletionTimeout is the default that Cluster API's admission sets, in seconds.
const defaultNodeDeletionTimeout = 10

// gather reads the facts that only a deletion needs.
func (d *deletionPass) gather(ctx context.Context) error {
	var err error
	if d.keeps, err = d.keepsNode(ctx); err != nil {
		return err
	}
	if d.keeps != "" {
		d.recordEvent(d.m, corev1.EventTypeNormal, "NodeKept", "the Node is neither drained nor deleted: "+d.keeps)
		return nil
	}
	if d.status.NodeRef.Name == "" { // it may have a Node, with pods
		return d.nodeProblem
	}
	node := &corev1.Node{}
	err = d.server.Get(ctx, client.ObjectKey{Name: d.status.NodeRef.Name}, node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get Node %s: %w", d.status.NodeRef.Name, err)
	}
	if deletion.OwnershipClusterAPI(node, d.m) == deletion.OwnNode {
		d.liveNode = node
	}
	return nil
}

// keepsNode returns why the Node is kept; empty if it is drained and deleted. A Node that could not be looked for is not
// kept for that reason.
func (d *deletionPass) keepsNode(ctx context.Context) (string, error) {
	switch {
	case d.cluster.UID == "":
		return "the Cluster is gone", nil
	case !d.cluster.DeletionTimestamp.IsZero():
		return "the Cluster is being deleted", nil
	case d.nodeOwner == openshiftGroup:
		return d.nodeProblem.Error(), nil
	case d.status.NodeRef.Name == "" && (d.nodeProblem == nil || d.nodeOwner != ""):
		return "the Machine has none", nil
	}
	if d.cluster.Spec.ControlPlaneRef.IsDefined() {
		controlPlane, err := d.references.Get(ctx, d.cluster.Spec.ControlPlaneRef, d.cluster.Namespace)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return "", fmt.Errorf("look at the control plane of the Cluster: %w", err)
		case controlPlane.GetDeletionTimestamp() != nil:
			return "the control plane is being deleted", nil
		default:
			if isExternal, _, _ := unstructured.NestedBool(controlPlane.Object, "status", "externalManagedControlPlane"); isExternal {
				return "", nil
			}
		}
	}
	var machines clusterv1.MachineList
	if err := d.server.List(ctx, &machines, client.InNamespace(d.m.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: d.cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return "", fmt.Errorf("list the Machines of the control plane: %w", err)
	}
	for i := range machines.Items {
		if machines.Items[i].DeletionTimestamp.IsZero() {
			return "", nil
		}
	}
	return "no Machine of the control plane would be left", nil
}

// snapshot returns the facts from which the next step of the deletion is decided.
func (d *deletionPass) snapshot() deletion.Snapshot {
	seen := deletion.Snapshot{
		PreDrain:     hooksOf(d.m, clusterv1.PreDrainDeleteHookAnnotationPrefix),
		PreTerminate: hooksOf(d.m, clusterv1.PreTerminateDeleteHookAnnotationPrefix),
		Node: deletion.MachineNode{
			Name: d.status.NodeRef.Name, IsGone: d.liveNode == nil || d.isNodeDeletionRequested, Problem: d.nodeRefusal,
			IsCordoned: d.liveNode != nil && d.liveNode.Spec.Unschedulable,
		},
		Drain:          d.drain,
		Infrastructure: d.infrastructure.facts(d.m.Spec.InfrastructureRef, d.infraProblem),
		ClusterAPI: deletion.ClusterAPIFacts{
			Now: d.time, IsNodeKept: d.keeps != "", Began: d.began(), Timeouts: timeoutsOf(d.m), Volumes: d.volumes,
			Bootstrap: d.bootstrap.facts(d.m.Spec.Bootstrap.ConfigRef, d.bootstrapProblem),
		},
	}
	_, seen.IsExcluded = d.m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]
	_, seen.ClusterAPI.Volumes.IsExcluded = d.m.Annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation]
	return seen
}

// facts returns the facts about an object for the deletion.
func (r referenced) facts(to clusterv1.ContractVersionedObjectReference, failed string) deletion.Infrastructure {
	facts := deletion.Infrastructure{Name: to.Kind, Problem: failed, Exists: r.object != nil, IsDeleting: r.isDeletionRequested}
	if r.object != nil && r.object.GetDeletionTimestamp() != nil {
		facts.IsDeleting = true
	}
	if r.problem != nil && failed == "" {
		facts.Problem = fmt.Sprintf("Failed to look at %s: %v", to.Kind, r.problem)
	}
	return facts
}

// began returns the recorded start times of the stages.
func (d *deletionPass) began() map[deletion.DeletionStage]time.Time {
	began := map[deletion.DeletionStage]time.Time{deletion.RemovingNode: d.m.DeletionTimestamp.Time}
	if d.status.Deletion == nil {
		return began
	}
	for _, stage := range []deletion.DeletionStage{deletion.BeforeDrain, deletion.Draining, deletion.DetachingVolumes, deletion.BeforeTerminate} {
		began[stage] = startOf(d.status.Deletion, stage).Time
	}
	return began
}

func timeoutsOf(m *clusterv1.Machine) map[deletion.DeletionStage]time.Duration {
	seconds := func(n *int32, unset int32) time.Duration { return time.Duration(ptr.Deref(n, unset)) * time.Second }
	return map[deletion.DeletionStage]time.Duration{
		deletion.Draining:         seconds(m.Spec.Deletion.NodeDrainTimeoutSeconds, 0),
		deletion.DetachingVolumes: seconds(m.Spec.Deletion.NodeVolumeDetachTimeoutSeconds, 0),
		deletion.RemovingNode:     seconds(m.Spec.Deletion.NodeDeletionTimeoutSeconds, defaultNodeDeletionTimeout),
	}
}
