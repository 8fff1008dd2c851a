package record

import (
	"iter"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A Run is how an apply stood when it last told: what of it is not done, and why. It is told
// for those who look from elsewhere. It goes when all is done, and stays after a run that
// failed or died.
type Run struct {
	Version    string      `json:"version,omitempty"`
	Mode       string      `json:"mode,omitempty"` // as package graph calls it
	ReportedAt metav1.Time `json:"told"`           // by the server's clock
	Ended      bool        `json:"ended,omitempty"`
	Error      string      `json:"error,omitempty"` // of one that has ended: why it is not all done
	Nodes      []RunNode   `json:"nodes,omitempty"` // that are not done, in the order of the graph
	More       int         `json:"more,omitempty"`  // manifests that are left out
	Total      int         `json:"total,omitempty"` // manifests, done or not; zero in records of older programs
	Levels     []RunLevel  `json:"levels,omitempty"`
}

// A RunLevel is how far a level is. Levels are left out where they are too many.
type RunLevel struct {
	Name  string `json:"name,omitempty"` // empty for files without a level
	Total int    `json:"total"`
	Left  int    `json:"left,omitempty"` // manifests that are not done
}

// A RunNode is a piece of the graph that is not done.
type RunNode struct {
	Name  string    `json:"name"`            // such as "level 50, shop"
	State string    `json:"state"`           // as package graph calls it
	After []int     `json:"after,omitempty"` // places in Run.Nodes of those that it waits for, or of the first of them
	More  int       `json:"more,omitempty"`  // others that it waits for
	Steps []RunStep `json:"steps,omitempty"`
}

// A StepState says where a step stands that is not done.
type StepState string

// The states of a step.
const (
	Blocked  StepState = "blocked"  // it was not its turn yet
	Retrying StepState = "retrying" // it failed, and is tried again
	Waiting  StepState = "waiting"  // it is applied, and not ready; or a hook waits
	Failed   StepState = "failed"   // for good
)

// A RunStep is a manifest that is not done, or a lifecycle hook of one. What is not done of a manifest stands together.
type RunStep struct {
	kinds.ID `json:",inline"`
	Hook     string       `json:"hook,omitempty"`
	File     string       `json:"file,omitempty"`
	State    StepState    `json:"state"`
	For      string       `json:"for,omitempty"` // what it waits for, or the error
	Reason   string       `json:"reason,omitempty"`
	Since    *metav1.Time `json:"since,omitempty"`
	Deletes  bool         `json:"deletes,omitempty"` // it is a tombstone
	Awaits   *kinds.ID    `json:"awaits,omitempty"`  // what has to be ready first, if that is waited for: it may be of another node, which the graph does not tell
}

// Begun is since when the step stands as it does; nil if that is not known.
func (s RunStep) Begun() *time.Time {
	if s.Since == nil {
		return nil
	}
	return &s.Since.Time
}

// Title names the step in words.
func (s RunStep) Title() string { return s.OrHook(s.Hook) }

// ByManifest returns the steps of each manifest.
func ByManifest(steps []RunStep) [][]RunStep {
	var groups [][]RunStep
	for i, step := range steps {
		if i == 0 || steps[i-1].ID != step.ID || steps[i-1].File != step.File {
			groups = append(groups, nil)
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], step)
	}
	return groups
}

// Left returns how many manifests are not done.
func (r *Run) Left() int {
	left := r.More
	for _, node := range r.Nodes {
		left += len(ByManifest(node.Steps))
	}
	return left
}

// Steps returns the steps that are not done, each with the place of its node in Run.Nodes. A nil Run has none.
func (r *Run) Steps() iter.Seq2[int, RunStep] {
	return func(yield func(int, RunStep) bool) {
		if r == nil {
			return
		}
		for i, node := range r.Nodes {
			for _, step := range node.Steps {
				if !yield(i, step) {
					return
				}
			}
		}
	}
}

// Find is where the first step stands that is not done of what a run does to an object: it may be a hook of it.
func (r *Run) Find(id kinds.ID) (node int, step RunStep, found bool) {
	for node, step := range r.Steps() {
		if step.ID == id {
			return node, step, true
		}
	}
	return 0, RunStep{}, false
}

// unsteady is how much a moment may differ from itself: it is a clock's reading less the
// time since, in whole seconds.
const unsteady = 2 * time.Second

// Same says whether a run stands as it stood before, whenever it told.
func (r *Run) Same(before *Run) bool {
	if before == nil {
		return false
	}
	r.steady(before)
	told := *before
	told.ReportedAt = r.ReportedAt
	return reflect.DeepEqual(*r, told)
}

// steady takes over moments that were told before, and are the same.
func (r *Run) steady(before *Run) {
	for i := range r.Nodes {
		for j := range r.Nodes[i].Steps {
			step := &r.Nodes[i].Steps[j]
			for _, known := range before.Steps() {
				isSame := known.ID == step.ID && known.Hook == step.Hook && known.State == step.State
				if isSame && step.Since != nil && known.Since != nil && step.Since.Sub(known.Since.Time).Abs() <= unsteady {
					step.Since = known.Since
				}
			}
		}
	}
}
