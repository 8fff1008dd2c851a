package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/pkg/apply/hook"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/lifecycle"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/record"
)

// hookSettings are what the hooks of a run, or of a preview, share.
type hookSettings struct {
	requests  context.Context
	cluster   *cluster.Cluster
	applier   *object.Applier
	results   *results
	options   Options
	readiness object.Readiness
	isPreview bool
}

// hooked is a Deployment with lifecycle hooks, and what its steps share.
type hooked struct {
	hookSettings
	task      int
	manifest  *payload.Manifest
	hooks     *lifecycle.Hooks
	runner    *hook.Runner
	isChecked bool // whether the Deployment is another release's
	previewed hooksPreview
}

// of returns the hooks of a manifest's Deployment; nil if it has none, and nothing is left of earlier ones.
func (s hookSettings) of(task int, m *payload.Manifest) *hooked {
	if m.IsTombstone() || m.GroupVersionKind().GroupKind() != kinds.Deployment {
		return nil
	}
	h := &hooked{hookSettings: s, task: task, manifest: m}
	h.hooks, _ = lifecycle.Parse(m.Object()) // what is wrong with them was said when the release was read
	if h.hooks == nil && !h.isRemembered() || h.isCreated() {
		return nil
	}
	desired := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m.Object().Object, desired); err != nil {
		return nil // the API server refuses it, and says why
	}
	rollout := lifecycle.Rollout{
		Release: s.options.Release, Hooks: h.hooks, Desired: desired, Template: lifecycle.HashTemplate(desired), Override: s.options.Hooks[m.ID()], Pause: s.options.PauseHooks,
	}
	handler := hook.Handler{Failed: h.failed, Warned: func(message string) { s.results.warned(m, []string{message}) }}
	if s.options.FollowHooks {
		handler.Logged = h.logged
	}
	h.runner = hook.New(m.ID(), s.cluster, rollout, hook.Options{Objects: h, States: h, Handler: handler})
	return h
}

// isRemembered reports whether earlier hooks of the Deployment are remembered: by the record, or, if that was lost, by the
// Deployment itself.
func (h *hooked) isRemembered() bool {
	if _, isThere := h.State(); isThere {
		return true
	}
	live := h.applier.Before(h.manifest)
	if live == nil {
		return false
	}
	_, isThere := lifecycle.ReadState(live)
	return isThere
}

// isCreated reports whether the Deployment is create-only, and was created with its hooks. No template of it is rolled out
// any more.
func (h *hooked) isCreated() bool {
	return h.manifest.IsCreateOnly() && h.applier.Before(h.manifest) != nil && !h.isBeingCreated()
}

// isBeingCreated reports whether a rollout is under way that has created the Deployment.
func (h *hooked) isBeingCreated() bool {
	state, _ := h.State()
	return state.Rollout != "" && state.IsInstall
}

// steps appends the steps of a Deployment with hooks. Needs are what the first one needs.
func (h *hooked) steps(steps []step, needs []int) []step {
	next := func() []int {
		first := needs
		needs = nil
		return first
	}
	for _, stage := range []lifecycle.Stage{lifecycle.Pre, lifecycle.Mid} {
		if h.hooks.Of(stage) != nil {
			steps = append(steps, &stageStep{stepBase{h.nameOf(stage), next()}, h, stage})
		}
	}
	object := &objectStep{stepBase: stepBase{object.StepOf(h.manifest), next()}, manifest: h.manifest, applier: h.applier}
	steps = append(steps, &hookedStep{objectStep: object, hooked: h})
	if h.hooks.Of(lifecycle.Post) != nil {
		steps = append(steps, &stageStep{stepBase{h.nameOf(lifecycle.Post), []int{h.task}}, h, lifecycle.Post})
	}
	return steps
}

// nameOf returns the name of a hook's step.
func (h *hooked) nameOf(stage lifecycle.Stage) object.StepID {
	id := object.StepOf(h.manifest)
	id.Hook = string(stage)
	return id
}

// A stageStep runs the hook of one stage.
type stageStep struct {
	stepBase
	*hooked
	stage lifecycle.Stage
}

// Needs returns what the step needs: nothing, if its hook does not run.
func (s *stageStep) Needs() []int {
	if s.stage == lifecycle.Post && !s.runner.IsDue() {
		return nil
	}
	return s.needs
}

func (s *stageStep) Do(context.Context) outcome {
	return s.outcome(s.id, func(ctx context.Context) (hook.StageResult, error) { return s.runner.Run(ctx, s.stage) })
}

// A hookedStep applies a Deployment between its hooks.
type hookedStep struct {
	*objectStep
	*hooked
	did *object.Change // what came of the apply, while what follows it has failed
}

func (s *hookedStep) Do(ctx context.Context) outcome {
	if s.did == nil {
		isDue := s.runner.IsDue()
		if before := s.outcome(s.id, s.runner.Before); before.Err != nil || before.wait != nil {
			return before
		}
		if isDue && s.objectStep.applier.Before(s.objectStep.manifest) != nil {
			s.isDone = true // what was seen of it before its hooks does not count any more
		}
		applied := s.objectStep.Do(ctx)
		if isDue && applied.Err != nil && !applied.isRetryable {
			s.scaleBack()
		}
		if applied.Err == nil && s.objectStep.manifest.IsCreateOnly() && s.isBeingCreated() {
			applied = try(s.objectStep.applier, s.objectStep.manifest, s.objectStep.applier.Unpause)
		}
		if applied.Err != nil {
			return applied
		}
		s.did = &applied.Change
	}
	if after := s.outcome(s.id, s.runner.After); after.Err != nil || after.wait != nil {
		return after
	}
	if live := s.runner.TakeScaled(); live != nil {
		s.readiness.Applied(s.objectStep.manifest, live)
	}
	change := *s.did
	s.did = nil
	return outcome{Change: change}
}

// scaleBack scales a Deployment back that its mid hook has scaled to 0, and that the cluster does not take.
func (s *hookedStep) scaleBack() {
	if err := s.runner.ScaleBack(s.requests); err != nil {
		s.results.warned(s.hooked.manifest, []string{"it stays scaled to 0: " + printable.Line(err.Error())})
	}
}

// outcome does something about hooks, and returns what came of it as that of a step.
func (h *hooked) outcome(id object.StepID, do func(context.Context) (hook.StageResult, error)) outcome {
	result, err := h.checked(do)
	change := object.Change{StepID: id, Action: actionOf(result.Ran), Message: result.Message}
	var givenUp *hook.GivenUp
	switch {
	case errors.As(err, &givenUp):
		change.Action, change.Err = object.Failed, object.FailureOf(id, givenUp.Err)
		change.Err.Why = indented(givenUp.Log)
		return outcome{Change: change}
	case err != nil:
		change.Action, change.Err = object.Failed, object.NewFailure(h.manifest, err)
		change.Err.StepID = id
		return outcome{Change: change, isRetryable: h.IsRetryable(err) || apierrors.IsNotFound(err), pause: object.WantedPause(err)}
	case result.Wait != nil:
		ctx := h.requests
		return outcome{Change: change, wait: &stepWait{For: result.Wait.Message, Since: result.Wait.Since, until: func(wake func()) func() {
			return h.runner.OnWake(ctx, result.Wait, wake)
		}}}
	default:
		return outcome{Change: change}
	}
}

// checked does something about hooks, unless the Deployment is another release's.
func (h *hooked) checked(do func(context.Context) (hook.StageResult, error)) (hook.StageResult, error) {
	if !h.isChecked && h.runner.IsDue() {
		if err := h.applier.CheckOwner(h.manifest); err != nil {
			return hook.StageResult{}, err
		}
		h.isChecked = true
	}
	return do(h.requests)
}

// actionOf returns the action of a step whose hook has a result.
func actionOf(result lifecycle.HookResult) object.Action {
	switch result {
	case lifecycle.Succeeded:
		return object.Ran
	case lifecycle.Ignored:
		return object.Ignored
	default:
		return object.NotNeeded
	}
}

// indented returns lines of a log as they stand below a failure.
func indented(log []string) []string {
	lines := make([]string, len(log))
	for i, line := range log {
		lines[i] = "  | " + line
	}
	return lines
}

// failed reports an attempt that has failed.
func (h *hooked) failed(failure hook.AttemptFailure) {
	if h.hooks.Of(failure.Stage).Policy() == lifecycle.Abort {
		return // the end of the step says so
	}
	h.results.events.about(h.nameOf(failure.Stage), Event{
		Type: Retrying, Reason: failure.Reason, Message: fmt.Sprintf("attempt %d failed: %s", failure.Attempt, failure.Message), Why: indented(failure.Log),
	})
}

// logged reports a line of the log of a hook's pod.
func (h *hooked) logged(stage lifecycle.Stage, _, line string) {
	h.results.events.about(h.nameOf(stage), Event{Type: Logged, Message: line})
}

// CreatePaused makes the Deployment, paused, if it is not there.
func (h *hooked) CreatePaused() error { return h.applier.CreatePaused(h.manifest) }

// ChangesTemplate reports whether an apply changes the pod template of the Deployment.
func (h *hooked) ChangesTemplate() (bool, error) { return h.applier.ChangesTemplate(h.manifest) }

// IsRetryable reports whether a request that was refused may succeed later.
func (h *hooked) IsRetryable(err error) bool { return h.applier.IsRetryable(h.manifest, err) }

// State returns what the record has of the Deployment's hooks.
func (h *hooked) State() (state lifecycle.State, isThere bool) {
	h.options.Journal.Read(func(known *record.Record) { state, isThere = known.FindHooks(h.manifest.ID()) })
	return state, isThere
}

// SaveState notes the state of the Deployment's hooks in the record.
func (h *hooked) SaveState(state lifecycle.State) error {
	if h.isPreview {
		return nil
	}
	return h.options.Journal.Note(h.requests, func(known *record.Record) { known.RememberHooks(h.manifest.ID(), state) })
}

// abandonHooks ends rollouts of Deployments that the release has no more, and that an earlier version has begun.
func (r *run) abandonHooks() {
	isThere := map[kinds.ID]bool{}
	for _, task := range r.order.tasks {
		isThere[task.ID()] = !task.IsTombstone()
	}
	var all []record.DeploymentHooks
	r.options.Journal.Read(func(known *record.Record) { all = slices.Clone(known.Hooks) })
	for _, one := range all {
		if isThere[one.ID] {
			continue
		}
		var err error
		if one.Rollout != "" {
			err = hook.Abandon(r.requests, r.cluster, r.options.Release, one)
		}
		if err == nil { // it has hooks again if it comes back
			err = r.options.Journal.Note(r.requests, func(known *record.Record) { known.RememberHooks(one.ID, lifecycle.State{}) })
		}
		if err != nil {
			klog.FromContext(r.requests).Error(err, "the hooks of a Deployment that the release has no more could not be ended", "object", one.ID.String())
		}
	}
}

// A hooksPreview is which hooks of a Deployment would run.
type hooksPreview struct {
	once    sync.Once
	stages  []lifecycle.Stage
	refused map[lifecycle.Stage]error
	err     error
}

// preview returns what would come of a hook. All hooks of a Deployment are looked at together.
func (s *stageStep) preview() (object.Change, error) {
	p := &s.previewed
	p.once.Do(func() { p.stages, p.refused, p.err = s.runner.Preview(s.requests) })
	refused := p.refused[s.stage]
	switch {
	case p.err != nil && !s.IsRetryable(p.err):
		return object.Change{}, p.err
	case p.err != nil:
		return object.Change{Action: object.NotChecked, Message: printable.Line(p.err.Error())}, nil
	case !slices.Contains(p.stages, s.stage):
		return object.Change{Action: object.NotNeeded}, nil
	case refused != nil && s.IsRetryable(refused): // what it lacks may come with the release
		return object.Change{Action: object.NotChecked, Message: printable.Line(refused.Error())}, nil
	case refused != nil:
		return object.Change{}, refused
	default:
		return object.Change{Action: object.Ran}, nil
	}
}
