package record

import (
	"iter"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A Run is the last reported state of an apply: what is not done, and why. Other processes
// read it. It is removed when all is done, and stays after a failed or killed run.
type Run struct {
	Version    string      `json:"version,omitempty"`
	Mode       string      `json:"mode,omitempty"` // as package graph calls it
	ReportedAt metav1.Time `json:"told"`           // by the server's clock
	Ended      bool        `json:"ended,omitempty"`
	Error      string      `json:"error,omitempty"` // why an ended run has not done all
	Nodes      []RunNode   `json:"nodes,omitempty"` // unfinished nodes, in the order of the graph
	More       int         `json:"more,omitempty"`  // manifests that are left out
	Total      int         `json:"total,omitempty"` // manifests, done or not; zero in records of older programs
	Levels     []RunLevel  `json:"levels,omitempty"`
}

// A RunLevel is the progress of a level. Levels are left out if there are too many.
type RunLevel struct {
	Name  string `json:"name,omitempty"` // empty for files without a level
	Total int    `json:"total"`
	Left  int    `json:"left,omitempty"` // manifests that are not done
}

// A RunNode is a node of the graph that is not done.
type RunNode struct {
	Name  string    `json:"name"`            // such as "level 50, shop"
	State string    `json:"state"`           // as package graph calls it
	After []int     `json:"after,omitempty"` // indexes in Run.Nodes of the nodes that it waits for, or of the first of them
	More  int       `json:"more,omitempty"`  // others that it waits for
	Steps []RunStep `json:"steps,omitempty"`
}

// A StepState is the state of a step that is not done.
type StepState string

// The states of a step.
const (
	Blocked  StepState = "blocked"  // earlier steps are not done
	Retrying StepState = "retrying" // the step has failed, and is tried again
	Waiting  StepState = "waiting"  // the object is applied and not ready, or the hook waits
	Failed   StepState = "failed"   // for good
)

// A RunStep is a manifest that is not done, or a lifecycle hook of a manifest. The steps of a manifest are adjacent.
type RunStep struct {
	kinds.ID `json:",inline"`
	Hook     string       `json:"hook,omitempty"`
	File     string       `json:"file,omitempty"`
	State    StepState    `json:"state"`
	For      string       `json:"for,omitempty"` // what it waits for, or the error
	Reason   string       `json:"reason,omitempty"`
	Since    *metav1.Time `json:"since,omitempty"`
	Deletes  bool         `json:"deletes,omitempty"` // it is a tombstone
	Awaits   *kinds.ID    `json:"awaits,omitempty"`  // the object that it waits for, if any: it may be of another node without an edge in the graph
}

// Begun returns since when the step has its state; nil if that is not known.
func (s RunStep) Begun() *time.Time {
	if s.Since == nil {
		return nil
	}
	return &s.Since.Time
}

// Title returns the step in words.
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

// Steps returns the steps that are not done, each with the index of its node in Run.Nodes. A nil Run has none.
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

// Find returns the first step of an object that is not done: it may be a hook of the object.
func (r *Run) Find(id kinds.ID) (node int, step RunStep, found bool) {
	for node, step := range r.Steps() {
		if step.ID == id {
			return node, step, true
		}
	}
	return 0, RunStep{}, false
}

// unsteady is how much the same moment may differ in two reports: it is the current time
// less a duration in whole seconds.
const unsteady = 2 * time.Second

// Same reports whether a run has the same state as before, at any time of its report.
func (r *Run) Same(before *Run) bool {
	if before == nil {
		return false
	}
	r.steady(before)
	unchanged := *before
	unchanged.ReportedAt = r.ReportedAt
	return reflect.DeepEqual(*r, unchanged)
}

// steady keeps the moments of the report before that differ by at most unsteady.
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
