package hook

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Steps returns the steps of a task whose Deployment has hooks; nil if it has none. Needs are the tasks that the first
// step needs.
func (s Settings) Steps(task int, m *payload.Manifest, needs []int) (steps []object.WalkStep) {
	r := s.runnerOf(m)
	if r == nil {
		return nil
	}
	for _, stage := range []deploymenthook.Stage{deploymenthook.Pre, deploymenthook.Mid} {
		if r.rollout.Hooks.Of(stage) != nil {
			steps = append(steps, &stageStep{object.StepBase{Name: r.nameOf(stage), After: needs}, r, stage})
			needs = nil
		}
	}
	steps = append(steps, &applyStep{StepBase: object.StepBase{Name: object.StepOf(m), After: needs}, runner: r})
	if r.rollout.Hooks.Of(deploymenthook.Post) != nil {
		steps = append(steps, &stageStep{object.StepBase{Name: r.nameOf(deploymenthook.Post), After: []int{task}}, r,
			deploymenthook.Post})
	}
	return steps
}

// A stageStep runs the hook of one stage.
type stageStep struct {
	object.StepBase
	*runner
	stage deploymenthook.Stage
}

// Needs returns the tasks that the step needs: none if its hook does not run.
func (s *stageStep) Needs() []int {
	isLeft := s.rollout.IsCreateOnly && !s.isBeingCreated(s.manifest)
	if s.stage == deploymenthook.Post && (isLeft || !s.isDue()) {
		return nil
	}
	return s.After
}

// Do continues the hook, until it has finished or has to wait.
func (s *stageStep) Do(context.Context) object.TryResult {
	return s.try(s.ID(), s.stage, func(facts deploymenthook.RolloutFacts) deploymenthook.HookAction {
		return s.rollout.Next(s.stage, facts)
	})
}

// An applyStep applies a Deployment between its hooks.
type applyStep struct {
	object.StepBase
	*runner
	result *object.Change // the result of the apply, kept while AfterApply is retried
}

func (s *applyStep) Do(context.Context) object.TryResult {
	if s.result == nil {
		isDue := s.isDue()
		if before := s.try(s.ID(), "", s.rollout.NextApply); before.Err != nil || before.Wait != nil {
			return before
		}
		applied := s.apply(isDue)
		if applied.Err != nil {
			return applied
		}
		s.result = &applied.Change
	}
	if after := s.try(s.ID(), "", s.rollout.AfterApply); after.Err != nil || after.Wait != nil {
		return after
	}
	if live := s.takeScaled(); live != nil {
		s.Applier.Workload(s.manifest).Observe(live)
	}
	change := *s.result
	s.result = nil
	return object.TryResult{Change: change}
}

// Preview returns the change that an apply of the Deployment would make.
func (s *applyStep) Preview(p *object.Previewer) (object.Change, error) { return p.Preview(s.manifest) }

// apply applies the Deployment itself.
func (s *applyStep) apply(isDue bool) object.TryResult {
	if isDue && s.Applier.Before(s.manifest) != nil {
		s.Applier.ForgetBefore(s.manifest)
	}
	change, err := s.Applier.Apply(s.manifest)
	applied := s.Applier.Result(s.manifest, change, err)
	if isDue && applied.Err != nil && !applied.IsRetryable {
		if err := s.scaleBack(s.RequestCtx); err != nil {
			s.reporter.warn("it stays scaled to 0: " + printable.Line(err.Error()))
		}
	}
	if applied.Err == nil && s.rollout.IsCreateOnly && s.isBeingCreated(s.manifest) {
		change, err = s.Applier.Workload(s.manifest).Unpause()
		applied = s.Applier.Result(s.manifest, change, err)
	}
	return applied
}

// try does actions until the next step may follow, or an action has to wait, and returns the result. It refuses the
// Deployment of another release.
func (r *runner) try(id object.StepID, stage deploymenthook.Stage,
	next func(deploymenthook.RolloutFacts) deploymenthook.HookAction) object.TryResult {
	result, err := object.TryResult{}, error(nil)
	if !r.isChecked && r.isDue() {
		err = r.Applier.Workload(r.manifest).CheckOwner()
		r.isChecked = err == nil
	}
	if err == nil {
		result, err = r.run(r.RequestCtx, stage, next)
	}
	result.StepID = id
	if err == nil {
		return result
	}
	result = object.TryResult{Change: object.Change{StepID: id, Action: object.Failed}}
	var stopped *stoppedError
	if errors.As(err, &stopped) {
		result.Err = object.FailureOf(id, stopped.err)
		result.Err.Why = indentLines(stopped.log)
		return result
	}
	result.IsRetryable, result.Pause = r.Applier.IsRetryable(r.manifest, err) ||
		apierrors.IsNotFound(err), object.WantedPause(err)
	if !result.IsRetryable && errors.As(err, new(*refusal)) {
		result.StepID = object.StepOf(r.manifest)
	}
	result.Err = object.NewFailure(r.manifest, err)
	result.Err.StepID = result.StepID
	return result
}

// indentLines returns lines of a log as they stand below a failure.
func indentLines(log []string) []string {
	lines := make([]string, len(log))
	for i, line := range log {
		lines[i] = "  | " + line
	}
	return lines
}
