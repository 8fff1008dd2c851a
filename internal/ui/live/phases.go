package live

import (
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// isApplied reports whether a process applies the release now.
func (r *Release) isApplied() bool { return r.Status.Lock != nil && !r.Status.Lock.Expired }

// setStates sets the states of the tasks and nodes of the graph: those of the apply in the record, and of objects that
// are not as they should be. What neither has is done.
func (r *Release) setStates() {
	known := r.knownPhases()
	rest := r.phaseOfRest()
	r.Tasks = make([]Phase, len(r.Graph.Tasks))
	for i, task := range r.Graph.Tasks {
		r.Tasks[i] = rest(task)
		id := kinds.IDOf(task.Object())
		clusterScoped := id
		clusterScoped.Namespace = "" // a manifest of a cluster-scoped object may have one
		if phase, isKnown := known[id]; isKnown {
			r.Tasks[i] = phase
		} else if phase, isKnown := known[clusterScoped]; isKnown {
			r.Tasks[i] = phase
		}
	}
	r.Nodes = make([]NodeState, len(r.Graph.Nodes))
	for i, node := range r.Graph.Nodes {
		for _, task := range node.Tasks {
			r.Nodes[i].add(r.Tasks[task])
		}
	}
	for i, node := range r.Graph.Nodes { // nodes without tasks stand between others
		if len(node.Tasks) > 0 {
			continue
		}
		r.Nodes[i].Phase = Done
		for _, before := range node.In {
			if r.Nodes[before].Phase != Done {
				r.Nodes[i].Phase = Blocked
			}
		}
	}
}

// isUnreported reports whether the record does not have the state of each manifest: the objects on the cluster show it.
func (r *Release) isUnreported() bool {
	return r.Status.Uninstall != nil || r.Status.Progress == nil && r.Status.State != record.Completed
}

// knownPhases returns the phases of the objects that are not done, and of those that the cluster has.
func (r *Release) knownPhases() map[kinds.ID]Phase {
	known := map[kinds.ID]Phase{}
	if list := r.objects(); list != nil && r.isUnreported() {
		for _, object := range list.Objects {
			switch {
			case object.Created == nil:
			case r.Status.Uninstall != nil: // to be deleted
				known[object.Object] = Blocked
			default:
				known[object.Object] = Done
			}
		}
	}
	for _, id := range r.Status.MissingObjects {
		known[id] = Failed
	}
	for _, answer := range r.Status.Objects {
		isDeleted := answer.State == why.Terminating || answer.State == why.Kept
		if isDeleted && r.Status.Progress != nil {
			continue // done for the apply, unless that reports it
		}
		if phase, isWrong := phases[answer.State]; isWrong {
			known[answer.Object] = phase
		}
	}
	if r.Status.Progress == nil {
		return known
	}
	run := apply.StateOf(r.Record.Run)
	for place, steps := range run.Manifests() {
		phase := phaseOf(steps)
		node := run.Nodes[place]
		if phase == Blocked && node.State == graph.Running && r.isApplied() && isFirst(node, steps) {
			phase = Running
		}
		known[steps[0].ID] = phase
	}
	return known
}

// isFirst reports whether the steps of a manifest are the first ones of a node that are left.
func isFirst(node apply.RunNodeState, steps []apply.RunStepState) bool {
	return &node.Steps[0] == &steps[0]
}

// phases are the phases of objects that are not ready.
var phases = map[why.ObjectState]Phase{
	why.Absent:      Failed,
	why.NotReady:    Waits,
	why.Outdated:    Blocked,
	why.Terminating: Waits,
	why.Kept:        Waits,
	why.Blocked:     Blocked,
	why.Unknown:     Unknown,
}

// phaseOf returns the phase of a manifest: the worst of its steps.
func phaseOf(steps []apply.RunStepState) Phase {
	phase := Blocked
	for _, step := range steps {
		switch step.Phase {
		case apply.HasFailed, apply.InRetry:
			return Failed
		case apply.InWait:
			phase = Waits
		}
	}
	return phase
}

// phaseOfRest returns a function that returns the phase of a task without a known phase.
func (r *Release) phaseOfRest() func(graph.Task) Phase {
	always := func(phase Phase) func(graph.Task) Phase { return func(graph.Task) Phase { return phase } }
	switch {
	case r.isUnreported() && r.objects() == nil:
		return always(Unknown)
	case r.Status.Uninstall != nil: // it was deleted
		return always(Done)
	case r.isUnreported():
		return func(task graph.Task) Phase {
			if task.IsTombstone() {
				return Done
			}
			return Unknown
		}
	case r.Status.Progress == nil || r.Record.Run.More == 0:
		return always(Done)
	}
	isDone := map[string]bool{} // the record omits manifests, but counts those of each level
	for _, level := range r.Record.Run.Levels {
		isDone[level.Name] = level.Left == 0
	}
	return func(task graph.Task) Phase {
		if isDone[graph.ParseName(task.File()).Level] {
			return Done
		}
		return Unknown
	}
}

// add counts a task, and sets the phase of the node.
func (n *NodeState) add(task Phase) {
	n.Total++
	switch task {
	case Done:
		n.Done++
	case Waits:
		n.Waiting++
	case Failed:
		n.Failed++
	}
	switch {
	case n.Total == 1 || rank[task] < rank[n.Phase]:
		n.Phase = task
	}
}

// rank orders phases: a node has the first one of its tasks.
var rank = map[Phase]int{Failed: 0, Waits: 1, Running: 2, Unknown: 3, Blocked: 4, Done: 5}

// estimate sets the progress, with the time left by the durations of the last apply.
func (r *Release) estimate() {
	if r.Status.Progress == nil {
		return
	}
	p := *r.Status.Progress
	r.Progress = &p
	if r.Payload == nil || !r.isApplied() {
		return
	}
	run := apply.StateOf(r.Record.Run)
	for i := range run.Components { // the record does not have when a component began
		component := &run.Components[i]
		component.Began = run.Now
		for _, step := range run.Steps() {
			isTried := step.Node == component.Name && step.IsTried() && !step.Since.IsZero()
			if isTried && step.Since.Before(component.Began) {
				component.Began = step.Since
			}
		}
	}
	intent := progress.IntentOf(run.Mode, r.Payload.Manifests, r.Record.Durations[string(run.Mode)])
	intent.Title, intent.Began = p.Title, p.Began
	model := progress.New(intent)
	model.State(run)
	model.At(run.Now)
	p = model.Progress()
	p.Left = max(0, p.Left-max(0, r.Status.Time.Sub(run.Now))).Truncate(time.Second)
}
