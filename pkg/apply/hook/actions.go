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
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// WhyRefused is the message of a hook that does not run because the API server refuses its Deployment.
const WhyRefused = "the Deployment is refused"

// A refusal is an error of the Deployment itself, before a hook has run.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

func (r *runner) do(ctx context.Context, stage deploymenthook.Stage, seen deploymenthook.RolloutFacts, action deploymenthook.HookAction) error {
	switch action.Do {
	case deploymenthook.Compare:
		isChanged, err := r.Applier.Workload(r.manifest).ChangesTemplate()
		if err != nil {
			return &refusal{err}
		}
		r.isChanged = &isChanged
		return nil
	case deploymenthook.MakePaused:
		if err := r.Applier.Workload(r.manifest).CreatePaused(); err != nil {
			return &refusal{err}
		}
		return nil
	case deploymenthook.Create:
		return r.create(ctx, action.Pod)
	case deploymenthook.Delete:
		return r.delete(ctx, action.Pod)
	case deploymenthook.Report:
		return r.report(ctx, stage, seen, action)
	default:
		return r.save(ctx, stage, seen, action)
	}
}

// create creates the pod of a hook. A final refusal is noted for the next decision, without an error. If a pod of the same
// name exists, a killed process has created it, and the next look may show it.
func (r *runner) create(ctx context.Context, pod *corev1.Pod) error {
	_, err := r.Cluster.Client.CoreV1().Pods(r.id.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: deploymenthook.FieldManager})
	switch {
	case err == nil:
		r.refused, r.lastState = nil, ""
		return nil
	case cluster.IsNoAnswer(err) || ctx.Err() != nil:
		return err
	}
	if r.refused == nil || r.refused.Pod != pod.Name {
		r.refused = &deploymenthook.Refusal{Pod: pod.Name, Since: r.Cluster.Now()}
	}
	r.refused.Cause, r.refused.IsFinal = printable.Line(r.masker.Replace(err.Error())), !apierrors.IsAlreadyExists(err) && !r.Applier.IsRetryable(r.manifest, err)
	if r.refused.IsFinal {
		return nil
	}
	return fmt.Errorf("its pod can't be created: %w", err)
}

// delete deletes a pod, and no other of the same name.
func (r *runner) delete(ctx context.Context, pod *corev1.Pod) error {
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	err := r.Cluster.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// save saves the state of an action, and scales the Deployment in the same write.
func (r *runner) save(ctx context.Context, stage deploymenthook.Stage, seen deploymenthook.RolloutFacts, action deploymenthook.HookAction) error {
	result := action.State.Hooks[stage].Result
	if result != "" && seen.State.Hooks[stage].Result == "" {
		r.logs.follow(ctx, stage, action.Pod)
		r.logs.drain()
		r.ran[stage] = result
	}
	if err := r.clearCondition(ctx, seen.Live, *action.State, result); err != nil {
		return err
	}
	if err := r.write(ctx, seen.Live, action); err != nil {
		return err
	}
	if action.IsOverruling {
		r.isOverruled.Store(true)
	}
	return nil
}

// clearCondition sets the condition to False when the failed hook has another result, or the rollout is over. It runs
// before the state is saved, so that a process that is killed in between does both again. An ignored failure stays.
func (r *runner) clearCondition(ctx context.Context, live *appsv1.Deployment, next deploymenthook.State, result deploymenthook.HookResult) error {
	isOver := next.Rollout == ""
	if live == nil || !hasFailed(live) || next.HasIgnored() || result == "" && !isOver {
		return nil
	}
	return r.setCondition(ctx, live, corev1.ConditionFalse, "NoHookFailed", "no lifecycle hook has failed since")
}

// write writes the state of an action to the Deployment and into the record.
func (r *runner) write(ctx context.Context, live *appsv1.Deployment, action deploymenthook.HookAction) error {
	if action.State == nil {
		return nil
	}
	if live != nil {
		if err := r.patchState(ctx, live, action); err != nil {
			return err
		}
	}
	return r.saveState(r.id, *action.State)
}

// patchState writes the state of an action to the Deployment, and scales it.
func (r *runner) patchState(ctx context.Context, live *appsv1.Deployment, action deploymenthook.HookAction) error {
	body := map[string]any{"metadata": map[string]any{"uid": live.UID, "annotations": map[string]any{deploymenthook.StateAnnotation: annotation(*action.State)}}}
	if action.Replicas != nil { // a process that has slept must not scale the Deployment
		body["metadata"].(map[string]any)["resourceVersion"] = live.ResourceVersion
		body["spec"] = map[string]any{"replicas": *action.Replicas}
	}
	now, err := r.patch(ctx, types.MergePatchType, body)
	if err == nil && action.Replicas != nil && *action.Replicas > 0 {
		r.scaled = now
	}
	return err
}

// annotation returns the value of the annotation with a state; nil removes it.
func annotation(state deploymenthook.State) any {
	if state.IsEmpty() {
		return nil
	}
	return state.Text()
}

func (r *runner) patch(ctx context.Context, how types.PatchType, body map[string]any, subresources ...string) (*appsv1.Deployment, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return r.Cluster.Client.AppsV1().Deployments(r.id.Namespace).Patch(ctx, r.id.Name, how, text, metav1.PatchOptions{FieldManager: deploymenthook.FieldManager}, subresources...)
}

// report reports a failed attempt: by an event and a condition of the Deployment, and to Settings.Failed.
func (r *runner) report(ctx context.Context, stage deploymenthook.Stage, seen deploymenthook.RolloutFacts, action deploymenthook.HookAction) error {
	r.logs.drain()
	r.log = nil
	if action.Pod != nil {
		r.log = r.logs.lastLines(ctx, stage, action.Pod)
	}
	action = action.WithLastLine(stage, r.log)
	message := fmt.Sprintf("the %s hook, attempt %d: %s", stage, action.Attempt, action.Message)
	if err := r.reportFailure(ctx, seen.Live, action.Reason, message, r.log); err != nil {
		return err
	}
	if err := r.write(ctx, seen.Live, action); err != nil {
		return err
	}
	r.refused = nil
	if r.rollout.Hooks.Of(stage).Policy() != deploymenthook.Abort { // with Abort, the result of the step reports it
		r.Failed(r.nameOf(stage), action.Reason, fmt.Sprintf("attempt %d failed: %s", action.Attempt, action.Message), indented(r.log))
	}
	return nil
}

// reportFailure reports a failure by a condition of the Deployment and an event.
func (r *runner) reportFailure(ctx context.Context, live *appsv1.Deployment, why, message string, log []string) error {
	if live == nil {
		return nil
	}
	if err := r.setCondition(ctx, live, corev1.ConditionTrue, why, message); err != nil {
		return err
	}
	r.recordEvent(ctx, live, why, eventText(message, log))
	return nil
}

// mostEvent is the longest message that an event may have.
const mostEvent = 1024

// eventText returns the text of an event: a message, and as many of the last log lines as fit.
func eventText(message string, log []string) string {
	for i := range log {
		if whole := strings.Join(append([]string{message}, log[i:]...), "\n"); len(whole) <= mostEvent {
			return whole
		}
	}
	return message
}

// recordEvent writes an event about the Deployment, and logs why it can't be written.
func (r *runner) recordEvent(ctx context.Context, live *appsv1.Deployment, why, message string) {
	news := cluster.ObjectEvent{ID: r.id, UID: live.UID, Reason: why, IsWarning: true, Message: message}
	if err := r.Cluster.RecordEvent(ctx, news); err != nil {
		r.warn("an event about a failed hook can't be written: " + printable.Line(err.Error()))
	}
}

// setCondition sets the condition for failed hooks. The list of conditions is merged by type, so that the
// deployment controller keeps it. If the user may not set it, that is no error.
func (r *runner) setCondition(ctx context.Context, live *appsv1.Deployment, status corev1.ConditionStatus, why, message string) error {
	now := metav1.NewTime(r.Cluster.Now())
	condition := appsv1.DeploymentCondition{
		Type: FailedCondition, Status: status, Reason: why, Message: printable.Truncate(message, 1024), LastUpdateTime: now, LastTransitionTime: now,
	}
	for _, before := range live.Status.Conditions {
		if before.Type == FailedCondition && before.Status == status {
			condition.LastTransitionTime = before.LastTransitionTime
		}
	}
	body := map[string]any{"metadata": map[string]any{"uid": live.UID}, "status": map[string]any{"conditions": []any{condition}}}
	_, err := r.patch(ctx, types.StrategicMergePatchType, body, "status")
	if apierrors.IsForbidden(err) {
		r.warn(fmt.Sprintf("the condition %s can't be set: %s", FailedCondition, printable.Line(err.Error())))
		return nil
	}
	return err
}

// hasFailed reports whether the condition for failed hooks of a Deployment is True.
func hasFailed(live *appsv1.Deployment) bool {
	for _, condition := range live.Status.Conditions {
		if condition.Type == FailedCondition && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// giveUp ends the rollout. It reports the failure, unless it was reported as a failed attempt.
func (r *runner) giveUp(ctx context.Context, seen deploymenthook.RolloutFacts, action deploymenthook.HookAction) error {
	r.logs.drain()
	if err := r.write(ctx, seen.Live, action); err != nil {
		return err
	}
	if action.State != nil && action.Reason != deploymenthook.HookFailed {
		if err := r.reportFailure(ctx, seen.Live, action.Reason, action.Message, nil); err != nil {
			r.warn("the reason why its rollout has stopped can't be written to the Deployment: " + printable.Line(err.Error()))
		}
	}
	return &givenUp{&reason.Error{Reason: action.Reason, Message: action.Message}, r.log}
}
