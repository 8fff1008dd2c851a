package apply

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A runScope contains the fields that the parts of a run share: its options, its steps in order, and their results
// until now.
type runScope struct {
	cluster    *cluster.Cluster
	options    Options
	order      *order
	nodes      *graph.Walk // the current walk through the graph; nil before the first
	components *components
	tracker    *await.Tracker
	applier    *object.Applier
	results    *results
	explainer  *explainer
	inbox      *inbox

	requestCtx context.Context // outlives an interruption for a while, so that pending requests may complete
	jobs       sync.WaitGroup  // requests that note Jobs in the record

	deadlineError string // the error of the run at the deadline
}

// state returns the present state of the run with its present waits.
func (s *runScope) state(waits []Wait) *RunState {
	current := &RunState{
		Version:    s.options.Version,
		Mode:       s.options.Mode,
		Now:        s.cluster.Now(),
		Error:      s.deadlineError,
		Components: s.components.states(),
	}
	for i := range current.Components {
		current.Components[i].Began = s.cluster.ServerTime(current.Components[i].Began)
	}
	awaited := byStep(waits)
	for node, steps := range s.order.nodes {
		n := RunNodeState{State: s.nodes.State(node), Steps: make([]RunStepState, 0, len(steps))}
		if len(steps) > 0 {
			n.Name = s.nameOf(node)
		}
		for _, i := range steps {
			n.Steps = append(n.Steps, s.stepState(i, awaited))
		}
		current.Nodes = append(current.Nodes, n)
	}
	for node := range current.Nodes {
		current.Nodes[node].After = current.unfinished(s.nodes.WhyBlocked(node))
	}
	return current
}

// stepState returns the state of a step.
func (s *runScope) stepState(i int, awaited map[object.StepID]Wait) RunStepState {
	id, change := s.order.steps[i].ID(), s.results.changes[i]
	step := RunStepState{
		Wait:    waitOf(id),
		Phase:   Blocked,
		Action:  change.Action,
		Result:  change.Message,
		Deletes: s.order.tasks[s.order.taskOf[i]].IsTombstone(),
	}
	failure := s.results.failureOf(i)
	wait, isAwaited := awaited[id]
	switch {
	case failure != nil:
		step.Phase, step.For, step.Reason, step.Effect, step.Why = HasFailed, textOf(failure), failure.Reason,
			failure.Effect(), failure.Why
		step.Since = failure.At
	case isAwaited && wait.IsRetry:
		step.Wait, step.Phase = wait, InRetry
	case isAwaited:
		step.Wait, step.Phase = wait, InWait
	case change.Action != object.NotDone:
		step.Phase = Done
	case s.results.refused[i]:
		step.Phase = Skipped
	case s.results.running[i]:
		step.Phase = InProgress
	default:
		step.Awaits = s.awaitedBy(i, awaited)
	}
	return step
}

// awaitedBy returns the first unready object that a step needs; nil if there is none.
func (s *runScope) awaitedBy(i int, awaited map[object.StepID]Wait) *kinds.ID {
	for _, need := range s.order.needsOf(i) {
		step := object.StepOf(s.order.tasks[need].Manifest)
		if _, isAwaited := awaited[step]; isAwaited {
			return &step.ID
		}
	}
	return nil
}

// nameOf names a node by its first step.
func (s *runScope) nameOf(node int) string {
	first := s.order.steps[s.order.nodes[node][0]].ID()
	return cmp.Or(first.Node, first.ID.String())
}

// allWaits returns the present waits: of steps that wait or are tried again, and then of the objects that are not
// ready, which are returned as well.
func (s *runScope) allWaits() ([]Wait, []await.Object) {
	objects := s.tracker.Waiting()
	var all []Wait
	for _, i := range slices.Sorted(maps.Keys(s.results.waits)) {
		all = append(all, s.results.waits[i])
	}
	for _, o := range objects {
		all = append(all, s.waitFor(o))
	}
	return all, objects
}

// waitFor returns the wait for an object.
func (s *runScope) waitFor(o await.Object) Wait {
	wait := waitOf(object.StepOf(o.Manifest))
	wait.For, wait.Since, wait.Reason, wait.Effect = o.Verdict.Message, s.cluster.ServerTime(o.Since).UTC(),
		o.Verdict.Reason, o.Verdict.Effect
	wait.HasFailed = o.Verdict.State == ready.Failed
	return wait
}
