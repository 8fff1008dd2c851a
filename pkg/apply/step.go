package apply

import (
	"github.com/runlevel/runlevel/pkg/apply/hook"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A stepMaker appends the steps of a task, in their order. One of them is about the object itself. Needs are the tasks that
// the first step needs.
type stepMaker func(steps []object.WalkStep, task int, m *payload.Manifest, needs []int) []object.WalkStep

// stepsWithHooks returns the stepMaker of a release whose Deployments may have hooks.
func stepsWithHooks(applier *object.Applier, hooks hook.Settings) stepMaker {
	return func(steps []object.WalkStep, task int, m *payload.Manifest, needs []int) []object.WalkStep {
		if ofHooks := hooks.Steps(task, m, needs); ofHooks != nil {
			return append(steps, ofHooks...)
		}
		return append(steps, applier.NewStep(m, needs))
	}
}
