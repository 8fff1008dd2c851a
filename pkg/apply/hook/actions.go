package hook

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// WhyRefused is the message of a hook that does not run because the API server refuses its Deployment.
const WhyRefused = "the Deployment is refused"

// A refusal is an error of the Deployment itself, before a hook has run.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

func (r *runner) do(ctx context.Context, stage deploymenthook.Stage, facts deploymenthook.RolloutFacts,
	action deploymenthook.HookAction) error {
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
		return r.report(ctx, stage, facts, action)
	default:
		return r.save(ctx, stage, facts, action)
	}
}

// create creates the pod of a hook. It notes a final refusal for the next decision, without an error. If a pod of the
// same name exists, a killed process has created it, and the next facts may have it.
func (r *runner) create(ctx context.Context, pod *corev1.Pod) error {
	_, err := r.Cluster.Client.CoreV1().Pods(r.id.Namespace).Create(ctx, pod,
		metav1.CreateOptions{FieldManager: deploymenthook.FieldManager})
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
	r.refused.Cause, r.refused.IsFinal = printable.Line(r.masker.Replace(err.Error())),
		!apierrors.IsAlreadyExists(err) && !r.Applier.IsRetryable(r.manifest, err)
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
func (r *runner) save(ctx context.Context, stage deploymenthook.Stage, facts deploymenthook.RolloutFacts,
	action deploymenthook.HookAction) error {
	result := action.State.Hooks[stage].Result
	if result != "" && facts.State.Hooks[stage].Result == "" {
		r.logs.follow(ctx, stage, action.Pod)
		r.logs.drain()
		r.ran[stage] = result
	}
	if err := r.reporter.clear(ctx, facts.Live, *action.State, result); err != nil {
		return err
	}
	if err := r.write(ctx, facts.Live, action); err != nil {
		return err
	}
	if action.IsOverruling {
		r.isOverruled.Store(true)
	}
	return nil
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
	var text any // nil removes the annotation
	if !action.State.IsEmpty() {
		text = action.State.Text()
	}
	metadata := map[string]any{"uid": live.UID, "annotations": map[string]any{deploymenthook.StateAnnotation: text}}
	body := map[string]any{"metadata": metadata}
	if action.Replicas != nil { // a process that has slept must not scale the Deployment
		metadata["resourceVersion"] = live.ResourceVersion
		body["spec"] = map[string]any{"replicas": *action.Replicas}
	}
	now, err := r.reporter.patch(ctx, types.MergePatchType, body)
	if err == nil && action.Replicas != nil && *action.Replicas > 0 {
		r.scaled = now
	}
	return err
}

// report reports a failed attempt: by an event and a condition of the Deployment, and to Settings.OnFailure.
func (r *runner) report(ctx context.Context, stage deploymenthook.Stage, facts deploymenthook.RolloutFacts,
	action deploymenthook.HookAction) error {
	r.logs.drain()
	r.log = nil
	if action.Pod != nil {
		r.log = r.logs.lastLines(ctx, stage, action.Pod)
	}
	action = action.WithLastLine(stage, r.log)
	message := fmt.Sprintf("the %s hook, attempt %d: %s", stage, action.Attempt, action.Message)
	if err := r.reporter.reportFailure(ctx, facts.Live, action.Reason, message, r.log); err != nil {
		return err
	}
	if err := r.write(ctx, facts.Live, action); err != nil {
		return err
	}
	r.refused = nil
	if r.rollout.Hooks.Of(stage).Policy() != deploymenthook.Abort { // the result of the step reports failures of Abort
		message = fmt.Sprintf("attempt %d failed: %s", action.Attempt, action.Message)
		r.OnFailure(r.nameOf(stage), action.Reason, message, indentLines(r.log))
	}
	return nil
}

// giveUp ends the rollout, and reports a failure that was not reported as a failed attempt.
func (r *runner) giveUp(ctx context.Context, facts deploymenthook.RolloutFacts,
	action deploymenthook.HookAction) error {
	r.logs.drain()
	if err := r.write(ctx, facts.Live, action); err != nil {
		return err
	}
	if action.State != nil && action.Reason != deploymenthook.HookFailed {
		if err := r.reporter.reportFailure(ctx, facts.Live, action.Reason, action.Message, nil); err != nil {
			r.reporter.warn("the reason why its rollout has stopped can't be written to the Deployment: " +
				printable.Line(err.Error()))
		}
	}
	return &stoppedError{&reason.Error{Reason: action.Reason, Message: action.Message}, r.log}
}

// Abandon ends rollouts that an earlier version has begun, of Deployments that the release no longer has.
func (s Settings) Abandon(isKept func(kinds.ID) bool) {
	var all []record.DeploymentHooks
	s.Journal.Read(func(known *record.Record) { all = slices.Clone(known.Hooks) })
	for _, hooks := range all {
		if isKept(hooks.ID) {
			continue
		}
		var err error
		if hooks.Rollout != "" {
			err = s.newRunner(hooks.ID, nil, deploymenthook.Rollout{}).abandon(s.RequestCtx, hooks.Replicas)
		}
		if err == nil { // the hooks of a recreated Deployment start from the beginning
			err = s.saveState(hooks.ID, deploymenthook.State{})
		}
		if err != nil {
			klog.FromContext(s.RequestCtx).Error(err,
				"the hooks of a Deployment that the release has no more could not be ended", "object",
				hooks.ID.String())
		}
	}
}

// abandon deletes the unfinished pods of the Deployment's hooks, and restores the replicas of a Deployment that was
// scaled to 0 for its mid hook. If the Deployment does not exist, the garbage collector deletes its pods.
func (r *runner) abandon(ctx context.Context, replicas *int32) error {
	live, err := r.observer.deployment(ctx)
	if err != nil || live == nil {
		return err
	}
	if owner, isOthers := live.Labels[objectmeta.ReleaseLabel]; isOthers && owner != r.Release {
		return nil
	}
	pods, err := r.observer.pods(ctx, r.observer.hookPods())
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if deploymenthook.HasEnded(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		if err := r.delete(ctx, pod); err != nil {
			return err
		}
	}
	replicas, state := deploymenthook.State{Replicas: replicas}.Restore(live)
	return r.patchState(ctx, live, deploymenthook.HookAction{State: state, Replicas: replicas})
}
