package record

import (
	"cmp"
	"crypto/rand"
	"iter"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Run is the last reported state of an apply: the manifests that are not done, and why. It is removed when all are
// done, and stays after a failed or killed run. Package apply writes it from the state of a run, and reads it as one:
// no other package reads it.
type Run struct {
	Version    string      `json:"version,omitempty"`
	Mode       string      `json:"mode,omitempty"` // value of graph.Mode
	ReportedAt metav1.Time `json:"told"`           // server time
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

// A RunNode is an unfinished node of the graph.
type RunNode struct {
	Name  string `json:"name"`  // such as "level 50, shop"
	State string `json:"state"` // value of graph.NodeState
	// indexes in Run.Nodes of the first nodes for which the node waits
	After []int     `json:"after,omitempty"`
	More  int       `json:"more,omitempty"` // others that it waits for
	Steps []RunStep `json:"steps,omitempty"`
}

// A RunStep is an unfinished manifest, or a lifecycle hook of a manifest. The steps of a manifest are adjacent.
type RunStep struct {
	kinds.ID `json:",inline"`
	Hook     string       `json:"hook,omitempty"`
	File     string       `json:"file,omitempty"`
	State    string       `json:"state"`         // value of apply.StepPhase: blocked, waiting, retrying or failed
	For      string       `json:"for,omitempty"` // the condition for which it waits, or the error
	Reason   string       `json:"reason,omitempty"`
	Since    *metav1.Time `json:"since,omitempty"`
	Deletes  bool         `json:"deletes,omitempty"` // it is a tombstone
	// the object that it waits for, if any: it may be of another node without an edge in the graph
	Awaits *kinds.ID `json:"awaits,omitempty"`
}

// unsteady limits the difference of the same moment in two reports: each is the current time less a duration in whole
// seconds.
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
	for step := range r.steps() {
		for known := range before.steps() {
			isSame := known.ID == step.ID && known.Hook == step.Hook && known.State == step.State
			if isSame && step.Since != nil && known.Since != nil && step.Since.Sub(known.Since.Time).Abs() <= unsteady {
				step.Since = known.Since
			}
		}
	}
}

// steps returns the steps of all nodes.
func (r *Run) steps() iter.Seq[*RunStep] {
	return func(yield func(*RunStep) bool) {
		for i := range r.Nodes {
			for j := range r.Nodes[i].Steps {
				if !yield(&r.Nodes[i].Steps[j]) {
					return
				}
			}
		}
	}
}

// Repairs are the repairs since the newest update began.
type Repairs struct {
	Count  int      `json:"count"`  // number of all repairs
	Latest []Repair `json:"latest"` // the last repaired objects, the newest first
}

// A Repair is a repaired object.
type Repair struct {
	kinds.ID `json:",inline"`
	Count    int         `json:"count"` // how often, as long as it is among the latest
	Time     metav1.Time `json:"time"`  // time of the last repair
	Message  string      `json:"message"`
}

// maxRepairs bounds how many repaired objects are kept.
const maxRepairs = 10

// AddRepair records the repair of an object.
func (r *Record) AddRepair(repair Repair) {
	if r.Repairs == nil {
		r.Repairs = &Repairs{}
	}
	r.Repairs.Count++
	latest := slices.Clone(r.Repairs.Latest)
	if i := slices.IndexFunc(latest, func(known Repair) bool { return known.ID == repair.ID }); i >= 0 {
		repair.Count = latest[i].Count
		latest = slices.Delete(latest, i, i+1)
	}
	repair.Count++
	latest = slices.Insert(latest, 0, repair)
	r.Repairs.Latest = latest[:min(maxRepairs, len(latest))]
}

// DeploymentHooks are the recorded state of a Deployment's lifecycle hooks.
type DeploymentHooks struct {
	kinds.ID             `json:",inline"`
	deploymenthook.State `json:",inline"`
}

// FindHooks returns the recorded state of a Deployment's hooks.
func (r *Record) FindHooks(id kinds.ID) (deploymenthook.State, bool) {
	index := slices.IndexFunc(r.Hooks, func(hooks DeploymentHooks) bool { return hooks.ID == id })
	if index < 0 {
		return deploymenthook.State{}, false
	}
	return r.Hooks[index].State, true
}

// RememberHooks records the state of a Deployment's hooks. An empty state is removed.
func (r *Record) RememberHooks(id kinds.ID, state deploymenthook.State) {
	r.Hooks = slices.DeleteFunc(slices.Clone(r.Hooks), func(hooks DeploymentHooks) bool { return hooks.ID == id })
	if !state.IsEmpty() {
		r.Hooks = append(r.Hooks, DeploymentHooks{id, state})
	}
}

// A HookOverride is a lifecycle hook that a user has skipped, or run again.
type HookOverride struct {
	kinds.ID `json:",inline"`     // the Deployment
	Hook     deploymenthook.Stage `json:"hook"`
	IsRerun  bool                 `json:"rerun,omitempty"` // false if it was skipped
	By       string               `json:"by"`
	Time     metav1.Time          `json:"time"`
}

// maxOverrides bounds how many overrides of an update are kept, the last ones.
const maxOverrides = 20

// AddOverrides records that users have skipped hooks in the newest update, or run them again.
func (r *Record) AddOverrides(hooks ...HookOverride) {
	if newest := r.Newest(); newest != nil {
		newest.Hooks = lastOverrides(append(slices.Clone(newest.Hooks), hooks...))
	}
}

func lastOverrides(all []HookOverride) []HookOverride {
	return all[max(0, len(all)-maxOverrides):]
}

// String returns the override as a sentence.
func (o HookOverride) String() string {
	did := "skipped"
	if o.IsRerun {
		did = "run again"
	}
	return o.OrHook(string(o.Hook)) + " " + did + " by " + printable.Line(o.By)
}

// NoteOwn records the source that an operator was started with; empty for the command line. Operators report updates.
func (r *Record) NoteOwn(own string) {
	if own != "" {
		r.Own, r.ReportID = own, cmp.Or(r.ReportID, rand.Text())
	}
}
