package apply

import (
	"iter"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// Limits of the state in the record: enough for every object of a large release, and a tenth of the size of a record.
const (
	maxSteps  = 500
	maxWaits  = 100
	maxBefore = 10 // nodes that a node waits for
	maxText   = 1000
	maxLevels = 500
)

// Record returns the compact form of a state for the record, which has only unfinished steps.
func (s *RunState) Record() *record.Run {
	recorded := &record.Run{
		Version: s.Version, Mode: string(s.Mode), ReportedAt: metav1.NewTime(s.Now.UTC().Truncate(time.Second)),
		Error: s.Error, Ended: s.IsOver, More: s.More,
	}
	recorded.Total, _ = s.Count()
	places, room := map[int]int{}, maxSteps
	for i, node := range s.Nodes {
		unfinished := slices.DeleteFunc(slices.Clone(node.Steps), func(step RunStepState) bool {
			return !step.IsLeft()
		})
		if len(unfinished) == 0 { // the node is done or empty
			continue
		}
		recordedSteps := unfinished[:min(room, len(unfinished))]
		room -= len(recordedSteps)
		recorded.More += manifestsIn(unfinished) - manifestsIn(recordedSteps)
		places[i] = len(recorded.Nodes)
		recorded.Nodes = append(recorded.Nodes, record.RunNode{Name: node.Name, State: string(node.State)})
		for _, step := range recordedSteps {
			recorded.Nodes[places[i]].Steps = append(recorded.Nodes[places[i]].Steps, step.record())
		}
	}
	for i, place := range places {
		after, recordedNode := s.Nodes[i].After, &recorded.Nodes[place]
		for _, blocker := range after[:min(maxBefore, len(after))] {
			recordedNode.After = append(recordedNode.After, places[blocker])
		}
		recordedNode.More = s.Nodes[i].More + len(after) - len(recordedNode.After)
	}
	if levels := s.Levels(); len(levels) <= maxLevels {
		recorded.Levels = levels
	}
	return recorded
}

// StateOf returns the state that a record has of a run; nil if it has none. Users may have edited the record, so all of
// it may be wrong.
func StateOf(run *record.Run) *RunState {
	if run == nil {
		return nil
	}
	s := &RunState{
		Version: run.Version, Mode: graph.Mode(run.Mode), Now: run.ReportedAt.Time, Error: run.Error, IsOver: run.Ended,
		More: run.More, recorded: run,
	}
	for _, node := range run.Nodes {
		n := RunNodeState{Name: node.Name, State: graph.NodeState(node.State), More: node.More}
		for _, before := range node.After {
			if before >= 0 && before < len(run.Nodes) {
				n.After = append(n.After, before)
			}
		}
		for _, step := range node.Steps {
			n.Steps = append(n.Steps, stepOf(step))
		}
		if n.State == graph.Running && !s.IsOver && len(n.Steps) > 0 { // the components after the first one wait for it
			s.Components = append(s.Components, ComponentState{Name: n.Steps[0].Node, IsRunning: true})
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// stepOf returns the state that a record has of a step.
func stepOf(recorded record.RunStep) RunStepState {
	step := RunStepState{
		Wait: Wait{
			ID:     recorded.ID,
			Hook:   recorded.Hook,
			File:   recorded.File,
			Node:   graph.ParseName(path.Base(recorded.File)).Words(),
			For:    recorded.For,
			Reason: recorded.Reason,
		},
		Phase: StepPhase(recorded.State), Deletes: recorded.Deletes, Awaits: recorded.Awaits,
	}
	if recorded.Since != nil {
		step.Since = recorded.Since.Time
	}
	switch step.Phase {
	case InWait:
	case HasFailed:
		step.Action = object.Failed
	default:
		step.Action, step.IsRetry = object.NotDone, step.Phase == InRetry
	}
	return step
}

// byManifest returns the steps of each manifest, which are adjacent.
func byManifest(steps []RunStepState) iter.Seq[[]RunStepState] {
	return func(yield func([]RunStepState) bool) {
		for first, i := 0, 1; i <= len(steps); i++ {
			if i < len(steps) && steps[i].ID == steps[first].ID && steps[i].File == steps[first].File {
				continue
			}
			if !yield(steps[first:i]) {
				return
			}
			first = i
		}
	}
}

// manifestsIn returns how many manifests have some steps.
func manifestsIn(steps []RunStepState) (count int) {
	for range byManifest(steps) {
		count++
	}
	return count
}

// record returns a step for the record.
func (s RunStepState) record() record.RunStep {
	step := record.RunStep{
		ID:      s.ID,
		Hook:    s.Hook,
		File:    s.File,
		State:   string(Blocked),
		Deletes: s.Deletes,
		Awaits:  s.Awaits,
	}
	if !s.IsTried() {
		return step
	}
	step.State, step.For, step.Reason = string(s.Phase), short(s.For), s.Reason
	if s.Phase != HasFailed {
		step.Since = new(metav1.NewTime(s.Since))
	}
	return step
}

// short truncates a text for the record.
func short(text string) string { return printable.Truncate(text, maxText) }

// firstLine returns the first line of an error, truncated.
func firstLine(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	first = strings.TrimSuffix(first, ":") // the errors followed the colon
	return short(printable.Line(first))
}
