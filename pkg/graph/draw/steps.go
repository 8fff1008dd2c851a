package draw

import (
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/lifecycle"
)

// A Step is one of the steps that an apply takes for a task, one after the other.
type Step struct {
	Task graph.Task
	Hook lifecycle.Stage // "" for the object itself
}

// StepsOf returns the steps of a task: its object, and the lifecycle hooks of a Deployment around it.
func StepsOf(task graph.Task) []Step {
	object := Step{Task: task}
	if task.IsTombstone() {
		return []Step{object}
	}
	hooks, _ := lifecycle.Parse(task.Object()) // what is wrong with them was said when the release was read
	var steps []Step
	for _, stage := range lifecycle.Stages {
		if stage == lifecycle.Post {
			steps = append(steps, object)
		}
		if hooks.Of(stage) != nil {
			steps = append(steps, Step{task, stage})
		}
	}
	return steps
}

// Label names the step: "deployment my-namespace/my-name", or "pre hook of" that.
func (s Step) Label() string {
	if s.Hook == "" {
		return graph.Label(s.Task)
	}
	return string(s.Hook) + " hook of " + graph.Label(s.Task)
}
