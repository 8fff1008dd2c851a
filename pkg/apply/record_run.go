package apply

import (
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/graph"
)

// Limits of the state in the record: enough for every object of a large release, and a tenth of what a record may hold.
const (
	mostSteps  = 500
	mostWaits  = 100
	mostBefore = 10 // nodes that a node waits for
	mostText   = 1000
	mostLevels = 500
)

// Record returns the compact form of a state for the record, which has only what is not done.
func (s *RunState) Record() *record.Run {
	recorded := &record.Run{
		Version: s.Version, Mode: string(s.Mode), ReportedAt: metav1.NewTime(s.Now.UTC().Truncate(time.Second)), Error: s.Error, Ended: s.IsOver,
	}
	levels, places, room := map[string]*record.RunLevel{}, map[int]int{}, mostSteps
	for i, node := range s.Nodes {
		var left []record.RunStep
		for _, of := range byManifest(node.Steps) {
			isLeft := slices.ContainsFunc(of, RunStepState.IsLeft)
			recorded.Total++
			count(levels, of[0].File, isLeft)
			if !isLeft {
				continue
			}
			for _, step := range of {
				if step.IsLeft() {
					left = append(left, step.record())
				}
			}
		}
		if len(left) == 0 { // the node is done or empty
			continue
		}
		places[i] = len(recorded.Nodes)
		kept := min(room, len(left))
		room -= kept
		recorded.More += len(record.ByManifest(left)) - len(record.ByManifest(left[:kept]))
		recorded.Nodes = append(recorded.Nodes, record.RunNode{Name: node.Name, State: string(node.State), Steps: left[:kept]})
	}
	for i, place := range places {
		after, at := s.Nodes[i].After, &recorded.Nodes[place]
		for _, blocker := range after[:min(mostBefore, len(after))] {
			at.After = append(at.After, places[blocker])
		}
		at.More = len(after) - len(at.After)
	}
	if len(levels) <= mostLevels { // otherwise the record has no room for them
		for _, level := range levels {
			recorded.Levels = append(recorded.Levels, *level)
		}
		slices.SortFunc(recorded.Levels, func(a, b record.RunLevel) int { return graph.CompareLevels(a.Name, b.Name) })
	}
	return recorded
}

// count counts a manifest in its level.
func count(levels map[string]*record.RunLevel, file string, isLeft bool) {
	name := graph.ParseName(path.Base(file)).Level
	if levels[name] == nil {
		levels[name] = &record.RunLevel{Name: name}
	}
	levels[name].Total++
	if isLeft {
		levels[name].Left++
	}
}

// byManifest returns the steps of each manifest, which are adjacent.
func byManifest(steps []RunStepState) (groups [][]RunStepState) {
	for from, i := 0, 1; i <= len(steps); i++ {
		if i == len(steps) || steps[i].ID != steps[from].ID || steps[i].File != steps[from].File {
			groups = append(groups, steps[from:i])
			from = i
		}
	}
	return groups
}

// record returns a step for the record.
func (s RunStepState) record() record.RunStep {
	step := record.RunStep{ID: s.ID, Hook: s.Hook, File: s.File, State: record.Blocked, Deletes: s.Deletes, Awaits: s.Awaits}
	switch s.Phase {
	case HasFailed:
		step.State = record.Failed
	case InRetry:
		step.State = record.Retrying
	case InWait:
		step.State = record.Waiting
	default:
		return step
	}
	step.For, step.Reason = short(s.For), s.Reason
	if s.Phase != HasFailed {
		step.Since = new(metav1.NewTime(s.Since))
	}
	return step
}

// short truncates a text to what the record keeps.
func short(text string) string { return printable.Truncate(text, mostText) }

// firstLine returns the first line of an error, truncated.
func firstLine(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	first = strings.TrimSuffix(first, ":") // the errors followed the colon
	return short(printable.Line(first))
}
