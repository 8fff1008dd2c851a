package apply

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A RunState is a run at one moment. It does not change after it was published.
type RunState struct {
	Version    string
	Mode       graph.Mode
	Now        time.Time // by the server's clock
	Error      string    // why not all was done at the deadline, or when the run ended
	IsOver     bool
	Components []ComponentState
	Nodes      []RunNodeState // in the order of the graph
}

// A ComponentState is the state of a component of a level that has begun.
type ComponentState struct {
	Name      string    // such as "level 50, web"
	Began     time.Time // by the server's clock
	IsRunning bool
	IsDone    bool
}

// A RunNodeState is the state of a node of the graph.
type RunNodeState struct {
	Name  string
	State graph.NodeState
	After []int // indexes of the unfinished nodes that it waits for; those that run or have failed come first
	Steps []RunStepState
}

// A StepPhase is how far a step is.
type StepPhase string

// The phases of a step.
const (
	Blocked    StepPhase = "blocked"  // earlier steps are not done
	InProgress StepPhase = "running"  // it is being tried
	InWait     StepPhase = "waiting"  // the object is applied and not ready, or the hook waits
	InRetry    StepPhase = "retrying" // it has failed, and is tried again
	Done       StepPhase = "done"
	HasFailed  StepPhase = "failed"  // for good
	Skipped    StepPhase = "skipped" // a hook of a Deployment that was refused
)

// A RunStepState is the state of a step. Its Wait has what it waits for, or why it has failed.
type RunStepState struct {
	Wait
	Phase   StepPhase
	Action  object.Action // what was done; object.NotDone if nothing was yet
	Result  string        // details of that: what holds a delete, why an object was kept
	Deletes bool
	Awaits  *kinds.ID // of a blocked step: the object that it waits for, if any
}

// Manifests returns the steps of each manifest, which are adjacent.
func (s *RunState) Manifests() iter.Seq[[]RunStepState] {
	return func(yield func([]RunStepState) bool) {
		for _, node := range s.Nodes {
			for _, steps := range byManifest(node.Steps) {
				if !yield(steps) {
					return
				}
			}
		}
	}
}

// Steps returns all steps. A nil RunState has none.
func (s *RunState) Steps() iter.Seq[RunStepState] {
	return func(yield func(RunStepState) bool) {
		if s == nil {
			return
		}
		for _, node := range s.Nodes {
			for _, step := range node.Steps {
				if !yield(step) {
					return
				}
			}
		}
	}
}

// IsFailing reports whether a step has failed, for good or until its object recovers.
func (s RunStepState) IsFailing() bool {
	return s.Phase == HasFailed || s.Phase == InWait && s.HasFailed
}

// Failure returns the event of a step that has failed.
func (s RunStepState) Failure() Event {
	return Event{
		Time: s.Since, Type: Failing, Object: &s.ID, Hook: s.Hook, File: s.File, Node: s.Node, Reason: s.Reason, Effect: s.Effect, Message: s.For, Why: s.Why,
	}
}

// IsLeft reports whether a step is still to be done, or to be waited for.
func (s RunStepState) IsLeft() bool { return s.Phase != Done && s.Phase != Skipped }

// state returns the present state of the run, whose waits are known.
func (r *run) state(waits []Wait) *RunState {
	s := &RunState{Version: r.options.Version, Mode: r.options.Mode, Now: r.cluster.Now(), Error: r.deadlineError, Components: r.components.states()}
	for i := range s.Components {
		s.Components[i].Began = r.cluster.ServerTime(s.Components[i].Began)
	}
	awaited := byStep(waits)
	for node, steps := range r.order.nodes {
		n := RunNodeState{State: r.nodes.State(node), Steps: make([]RunStepState, 0, len(steps))}
		if len(steps) > 0 {
			n.Name = r.nameOf(node)
		}
		for _, i := range steps {
			n.Steps = append(n.Steps, r.stepState(i, awaited))
		}
		s.Nodes = append(s.Nodes, n)
	}
	for node := range s.Nodes {
		s.Nodes[node].After = s.unfinished(r.nodes.WhyBlocked(node))
	}
	return s
}

// stepState returns the state of a step.
func (r *run) stepState(i int, awaited map[object.StepID]Wait) RunStepState {
	id, change := r.order.steps[i].ID(), r.results.changes[i]
	step := RunStepState{Wait: waitOf(id), Phase: Blocked, Action: change.Action, Result: change.Message, Deletes: r.order.tasks[r.order.taskOf[i]].IsTombstone()}
	failure := r.results.failureOf(i)
	wait, isAwaited := awaited[id]
	switch {
	case failure != nil:
		step.Phase, step.For, step.Reason, step.Effect, step.Why = HasFailed, textOf(failure), failure.Reason, failure.Effect(), failure.Why
		step.Since = failure.At
	case isAwaited && wait.IsRetry:
		step.Wait, step.Phase = wait, InRetry
	case isAwaited:
		step.Wait, step.Phase = wait, InWait
	case change.Action != object.NotDone:
		step.Phase = Done
	case r.results.refused[i]:
		step.Phase = Skipped
	case r.results.running[i]:
		step.Phase = InProgress
	default:
		step.Awaits = r.awaitedBy(i, awaited)
	}
	return step
}

// unfinished returns the nodes that have steps left, and those that run or have failed first, since they explain most.
func (s *RunState) unfinished(nodes []int) []int {
	nodes = slices.DeleteFunc(nodes, func(node int) bool { return !slices.ContainsFunc(s.Nodes[node].Steps, RunStepState.IsLeft) })
	isBlocked := func(node int) int {
		if s.Nodes[node].State == graph.Blocked {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(nodes, func(a, b int) int { return cmp.Compare(isBlocked(a), isBlocked(b)) })
	return nodes
}

// awaitedBy returns the first object that a step needs and that is not ready; nil if there is none.
func (r *run) awaitedBy(i int, awaited map[object.StepID]Wait) *kinds.ID {
	for _, need := range r.order.needsOf(i) {
		step := object.StepOf(r.order.tasks[need].Manifest)
		if _, isAwaited := awaited[step]; isAwaited {
			return &step.ID
		}
	}
	return nil
}

// nameOf names a node by its first step.
func (r *run) nameOf(node int) string {
	first := r.order.steps[r.order.nodes[node][0]].ID()
	return cmp.Or(first.Node, first.ID.String())
}
