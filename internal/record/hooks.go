package record

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

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
	kinds.ID `json:",inline"`     // of the Deployment
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
