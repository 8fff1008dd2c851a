package hook

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// isDue reports, without a request, whether the template may still have to be rolled out with its hooks.
func (r *runner) isDue() bool {
	state, _ := r.stateOf(r.id)
	return !state.IsRolledOut(r.rollout.Template) || !r.rollout.Override.IsEmpty() && !r.isOverruled.Load()
}

// maxConflicts limits the retries of an action after conflicts with other writers of the Deployment.
const maxConflicts = 10

// run does one action after the other, until the next step may follow or an action has to wait. Its error is a
// *stoppedError if the rollout has to stop; any other error may be retried.
func (r *runner) run(ctx context.Context, stage deploymenthook.Stage,
	next func(deploymenthook.RolloutFacts) deploymenthook.HookAction) (object.TryResult, error) {
	r.running.Lock() // the Deployment may be applied again during its post hook
	defer r.running.Unlock()
	if !r.isDue() {
		return object.TryResult{Change: object.Change{
			Action:  object.NotNeeded,
			Message: "the pod template is not new",
		}}, nil
	}
	for conflicts := 0; ; {
		facts, err := r.look(ctx, stage)
		if err != nil {
			return object.TryResult{}, err
		}
		action := next(facts)
		switch action.Do {
		case deploymenthook.Proceed:
			return object.TryResult{Change: r.change(stage, action)}, nil
		case deploymenthook.Wait:
			return object.TryResult{Wait: r.waitFor(ctx, stage, facts, action)}, nil
		case deploymenthook.GiveUp:
			err = r.giveUp(ctx, facts, action)
		default:
			err = r.do(ctx, stage, facts, action)
		}
		if apierrors.IsConflict(err) && conflicts < maxConflicts { // the deployment controller writes at the same time
			conflicts++
			continue
		}
		if err != nil {
			return object.TryResult{}, err
		}
		// its pods take a moment, and another client may scale it up again
		if action.Do == deploymenthook.Scale && stage == deploymenthook.Mid {
			return object.TryResult{Wait: r.waitFor(ctx, stage, facts,
				deploymenthook.HookAction{Message: "the Deployment is scaled to 0"})}, nil
		}
	}
}

// scaleBack restores the replicas of a Deployment that was scaled to 0 for its mid hook.
func (r *runner) scaleBack(ctx context.Context) error {
	r.running.Lock()
	defer r.running.Unlock()
	facts, err := r.look(ctx, "")
	if err != nil || facts.Live == nil {
		return err
	}
	replicas, state := facts.State.Restore(facts.Live)
	if replicas == nil {
		return nil
	}
	return r.write(ctx, facts.Live, deploymenthook.HookAction{State: state, Replicas: replicas})
}

// takeScaled returns, once, the Deployment as it was scaled back last; nil if it was not.
func (r *runner) takeScaled() *unstructured.Unstructured {
	r.running.Lock()
	defer r.running.Unlock()
	live := r.scaled
	r.scaled = nil
	if live == nil {
		return nil
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil // its watch shows the Deployment as well
	}
	return &unstructured.Unstructured{Object: object}
}

// results are the changes of hooks by their results in this apply.
var results = map[deploymenthook.HookResult]object.Change{
	deploymenthook.Succeeded: {Action: object.Ran},
	deploymenthook.Ignored:   {Action: object.Ignored, Message: "it has failed, and its failure policy is Ignore"},
	deploymenthook.Skipped:   {Action: object.NotNeeded, Message: "it was skipped"},
	deploymenthook.NotNeeded: {Action: object.NotNeeded, Message: "none of the Deployment's pods runs yet"},
}

// change returns the result of the hook of a stage, with the reason if it has not run in this apply.
func (r *runner) change(stage deploymenthook.Stage, proceed deploymenthook.HookAction) object.Change {
	if change, hasResult := results[r.ran[stage]]; hasResult {
		return change
	}
	return object.Change{Action: object.NotNeeded, Message: proceed.Message}
}

// A stoppedError is the error of a rollout that stops.
type stoppedError struct {
	err *reason.Error
	log []string // the last lines of the failed pod
}

func (e *stoppedError) Error() string { return e.err.Error() }
func (e *stoppedError) Unwrap() error { return e.err }
