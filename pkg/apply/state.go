package apply

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A RunState is the state of a run at one time: of this process, or of another process by its record. It does not
// change after it was published.
type RunState struct {
	Version    string
	Mode       graph.Mode
	Now        time.Time // server time
	Error      string    // the error of the run at the deadline, or at its end
	IsOver     bool
	Components []ComponentState
	Nodes      []RunNodeState // nodes in the order of the graph; in a record, only unfinished nodes
	More       int            // manifests that are not done, and that a record has no room for

	recorded *record.Run // the source of the state; nil for a run of this process
}

// A ComponentState is the state of a component of a level that has begun.
type ComponentState struct {
	Name      string    // such as "level 50, web"
	Began     time.Time // server time
	IsRunning bool
	IsDone    bool
}

// A RunNodeState is the state of a node of the graph.
type RunNodeState struct {
	Name  string
	State graph.NodeState
	After []int // indexes of the unfinished nodes that it waits for; those that run or have failed come first
	More  int   // others that it waits for, and that a record has no room for
	Steps []RunStepState
}

// A StepPhase is how far a step is.
type StepPhase string

// The phases of a step.
const (
	Blocked    StepPhase = "blocked"  // earlier steps are not done
	InProgress StepPhase = "running"  // a worker tries the step
	InWait     StepPhase = "waiting"  // the object is applied and not ready, or the hook waits
	InRetry    StepPhase = "retrying" // the step has failed, and is tried again
	Done       StepPhase = "done"
	HasFailed  StepPhase = "failed"  // the step is not retried
	Skipped    StepPhase = "skipped" // a hook of a Deployment that was refused
)

// A RunStepState is the state of a step. Its Wait has the reason of a wait or a failure.
type RunStepState struct {
	Wait
	Phase   StepPhase
	Action  object.Action // the result; object.NotDone if the step was not done yet; "" if a record does not have it
	Result  string        // details of the action: why a delete is blocked, or why an object was kept
	Deletes bool
	Awaits  *kinds.ID // the object that a blocked step waits for, if any
}

// Planned returns the state of a run that has not begun.
func Planned(manifests []*payload.Manifest) *RunState {
	var all RunNodeState
	for _, m := range manifests {
		all.Steps = append(all.Steps, RunStepState{
			Wait:    waitOf(object.StepOf(m)),
			Phase:   Blocked,
			Action:  object.NotDone,
			Deletes: m.IsTombstone(),
		})
	}
	return &RunState{Nodes: []RunNodeState{all}}
}

// Manifests returns the steps of each manifest, which are adjacent, with the index of their node. A nil RunState has
// none.
func (s *RunState) Manifests() iter.Seq2[int, []RunStepState] {
	return func(yield func(int, []RunStepState) bool) {
		if s == nil {
			return
		}
		for i, node := range s.Nodes {
			for steps := range byManifest(node.Steps) {
				if !yield(i, steps) {
					return
				}
			}
		}
	}
}

// Steps returns all steps, each with the index of its node. A nil RunState has none.
func (s *RunState) Steps() iter.Seq2[int, RunStepState] {
	return func(yield func(int, RunStepState) bool) {
		for node, steps := range s.Manifests() {
			for _, step := range steps {
				if !yield(node, step) {
					return
				}
			}
		}
	}
}

// Find returns the first unfinished step of an object, and the index of its node: it may be a hook of the object.
func (s *RunState) Find(id kinds.ID) (node int, step RunStepState, found bool) {
	for node, step := range s.Steps() {
		if step.ID == id && step.IsLeft() {
			return node, step, true
		}
	}
	return 0, RunStepState{}, false
}

// Count returns how many manifests there are, and how many have an unfinished step.
func (s *RunState) Count() (total, unfinished int) {
	for _, steps := range s.Manifests() {
		total++
		if slices.ContainsFunc(steps, RunStepState.IsLeft) {
			unfinished++
		}
	}
	if s != nil && s.recorded != nil {
		unfinished += s.More
		total = max(s.recorded.Total, unfinished)
	}
	return total, unfinished
}

// Levels counts the manifests of each level, by the numbers of the levels. A record may have no room for them.
func (s *RunState) Levels() []record.RunLevel {
	if s != nil && s.recorded != nil {
		return s.recorded.Levels
	}
	var levels []record.RunLevel
	places := map[string]int{}
	for _, steps := range s.Manifests() {
		name := steps[0].Component().Level
		i, isKnown := places[name]
		if !isKnown {
			i = len(levels)
			places[name], levels = i, append(levels, record.RunLevel{Name: name})
		}
		levels[i].Total++
		if slices.ContainsFunc(steps, RunStepState.IsLeft) {
			levels[i].Left++
		}
	}
	slices.SortStableFunc(levels, func(a, b record.RunLevel) int { return graph.CompareLevels(a.Name, b.Name) })
	return levels
}

// IsFailing reports whether a step has failed, for good or until its object recovers.
func (s RunStepState) IsFailing() bool {
	return s.Phase == HasFailed || s.Phase == InWait && s.HasFailed
}

// Failure returns the event of a step that has failed.
func (s RunStepState) Failure() Event {
	return Event{
		Time: s.Since, Type: Failing, Object: &s.ID, Hook: s.Hook, File: s.File, Node: s.Node, Reason: s.Reason,
		Effect: s.Effect, Message: s.For, Why: s.Why,
	}
}

// IsLeft reports whether a step is still to be done, or to be waited for.
func (s RunStepState) IsLeft() bool { return s.Phase != Done && s.Phase != Skipped }

// IsTried reports whether the run is at a step, or has failed at it.
func (s RunStepState) IsTried() bool {
	return s.Phase == InWait || s.Phase == InRetry || s.Phase == HasFailed
}

// unfinished returns the nodes that have steps left, and those that run or have failed first, since they explain most.
func (s *RunState) unfinished(nodes []int) []int {
	nodes = slices.DeleteFunc(nodes, func(node int) bool {
		return !slices.ContainsFunc(s.Nodes[node].Steps, RunStepState.IsLeft)
	})
	isBlocked := func(node int) int {
		if s.Nodes[node].State == graph.Blocked {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(nodes, func(a, b int) int { return cmp.Compare(isBlocked(a), isBlocked(b)) })
	return nodes
}
