package drain

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/machines/conditions"
)

// The reasons of the conditions that WriteConditions writes. A condition with another reason is another writer's.
const (
	MachineDeletion = "MachineDeletion"
	MachineUpdate   = "MachineInPlaceUpdate"
)

// Conditions are conditions that Kubernetes reserves for drains and maintenance of nodes, and whether they are true. A
// missing one stays as it is.
type Conditions map[corev1.NodeConditionType]bool

// Ended are the conditions of a node after the deletion or the update of its machine.
var Ended = Conditions{
	corev1.NodeDrainInProgress: false, corev1.NodeDrained: false,
	corev1.NodeMaintenancePlanned: false, corev1.NodeMaintenanceInProgress: false,
}

// DeletionConditions returns the conditions of a node that is deleted with its machine.
func DeletionConditions(isDraining, isDrained bool) Conditions {
	return Conditions{
		corev1.NodeDrainInProgress: isDraining, corev1.NodeDrained: isDrained && !isDraining,
		corev1.NodeMaintenancePlanned: true, corev1.NodeMaintenanceInProgress: false,
	}
}

// A Report is what WriteConditions writes.
type Report struct {
	Reason     string // MachineDeletion or MachineUpdate
	Machine    string // the machine of the node, as namespace/name
	Conditions Conditions
}

// messages are the messages of conditions by their reasons, before the machine.
var messages = map[string]string{MachineDeletion: "deletion of Machine ", MachineUpdate: "update in place of Machine "}

// longestWrite limits how long a drain may wait for the API server to write conditions.
const longestWrite = 5 * time.Second

// WriteConditions writes the conditions of a node that differ. A drain does not depend on them, so the caller continues
// after an error.
func WriteConditions(ctx context.Context, c Client, node *corev1.Node, report Report) error {
	changed := report.Conditions.changes(node, corev1.NodeCondition{
		Reason: report.Reason, Message: messages[report.Reason] + report.Machine,
		LastTransitionTime: conditions.Time(c.Now()),
	})
	if len(changed) == 0 {
		return nil
	}
	// The API server merges conditions by their types: those of the kubelet and of other writers stay.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID}, "status": map[string]any{"conditions": changed},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, longestWrite)
	defer cancel()
	_, err = c.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
		"status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the conditions of node %s: %w", node.Name, requestError(err))
	}
	return nil
}

// changes returns the conditions to write; next has the fields that they share. A schedulable node is neither drained
// nor being drained. A condition that another writer has set to true stays, and one that was never true is not written.
func (c Conditions) changes(node *corev1.Node, next corev1.NodeCondition) []corev1.NodeCondition {
	var changed []corev1.NodeCondition
	for _, kind := range slices.Sorted(maps.Keys(Ended)) {
		isWanted, isKnown := c[kind]
		if !node.Spec.Unschedulable && (kind == corev1.NodeDrainInProgress || kind == corev1.NodeDrained) {
			isWanted, isKnown = false, true
		}
		before := ptr.Deref(conditions.OfNode(node, kind), corev1.NodeCondition{})
		isTrue := before.Status == corev1.ConditionTrue
		isOwn := messages[before.Reason] != ""
		isSame := isWanted == isTrue &&
			(!isTrue || before.Reason == next.Reason && before.Message == next.Message)
		if !isKnown || isSame || isTrue && !isOwn {
			continue
		}
		after := next
		after.Type, after.Status, after.LastHeartbeatTime = kind, corev1.ConditionFalse, next.LastTransitionTime
		if isWanted {
			after.Status = corev1.ConditionTrue
		}
		if isWanted == isTrue {
			after.LastTransitionTime = before.LastTransitionTime
		}
		changed = append(changed, after)
	}
	return changed
}
