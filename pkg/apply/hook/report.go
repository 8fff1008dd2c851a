package hook

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// FailedCondition is the condition of a Deployment whose hook has failed. It becomes False when the hook succeeds.
const FailedCondition = "LifecycleHookFailed"

// A reporter reports the failures of hooks on their Deployment, by a condition and by events.
type reporter struct {
	cluster *cluster.Cluster
	id      kinds.ID
	warn    func(text string)
}

// reportFailure reports a failure.
func (r reporter) reportFailure(ctx context.Context, live *appsv1.Deployment, reason, message string,
	log []string) error {
	if live == nil {
		return nil
	}
	if err := r.setCondition(ctx, live, corev1.ConditionTrue, reason, message); err != nil {
		return err
	}
	event := cluster.ObjectEvent{
		ID:        r.id,
		UID:       live.UID,
		Reason:    reason,
		IsWarning: true,
		Message:   eventText(message, log),
	}
	if err := cluster.RecordEvent(ctx, r.cluster, event); err != nil {
		r.warn("an event about a failed hook can't be written: " + printable.Line(err.Error()))
	}
	return nil
}

// clear sets the condition to False when the failed hook has another result, or the rollout is over. The
// condition is set before the state is saved: if this process is killed in between, the next process does both again.
// An ignored failure stays.
func (r reporter) clear(ctx context.Context, live *appsv1.Deployment, next deploymenthook.State,
	result deploymenthook.HookResult) error {
	if live == nil || conditionOf(live).Status != corev1.ConditionTrue || next.HasIgnored() ||
		result == "" && next.Rollout != "" {
		return nil
	}
	return r.setCondition(ctx, live, corev1.ConditionFalse, "NoHookFailed", "no lifecycle hook has failed since")
}

// setCondition sets the condition for failed hooks. The list of conditions is merged by type, so that the deployment
// controller keeps it. A missing right to set it is not an error.
func (r reporter) setCondition(ctx context.Context, live *appsv1.Deployment, status corev1.ConditionStatus, reason,
	message string) error {
	now := metav1.NewTime(r.cluster.Now())
	condition := appsv1.DeploymentCondition{
		Type: FailedCondition, Status: status, Reason: reason, Message: printable.Truncate(message, 1024),
		LastUpdateTime: now, LastTransitionTime: now,
	}
	if before := conditionOf(live); before.Status == status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	body := map[string]any{
		"metadata": map[string]any{"uid": live.UID},
		"status":   map[string]any{"conditions": []any{condition}},
	}
	_, err := r.patch(ctx, types.StrategicMergePatchType, body, "status")
	if apierrors.IsForbidden(err) {
		r.warn(fmt.Sprintf("the condition %s can't be set: %s", FailedCondition, printable.Line(err.Error())))
		return nil
	}
	return err
}

// conditionOf returns the condition for failed hooks of a Deployment; the zero value if it has none.
func conditionOf(live *appsv1.Deployment) appsv1.DeploymentCondition {
	for _, condition := range live.Status.Conditions {
		if condition.Type == FailedCondition {
			return condition
		}
	}
	return appsv1.DeploymentCondition{}
}

// patch patches the Deployment as the field manager of hooks.
func (r reporter) patch(ctx context.Context, how types.PatchType, body map[string]any,
	subresources ...string) (*appsv1.Deployment, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return r.cluster.Client.AppsV1().Deployments(r.id.Namespace).Patch(ctx, r.id.Name, how, text,
		metav1.PatchOptions{FieldManager: deploymenthook.FieldManager}, subresources...)
}

// maxEvent is the longest message that an event may have.
const maxEvent = 1024

// eventText returns the text of an event: a message, and as many of the last log lines as fit.
func eventText(message string, log []string) string {
	for i := range log {
		if whole := strings.Join(append([]string{message}, log[i:]...), "\n"); len(whole) <= maxEvent {
			return whole
		}
	}
	return message
}
