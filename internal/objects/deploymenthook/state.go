package deploymenthook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FieldManager is the field manager of the fields that hooks need: the state, the replicas of a mid hook, the
// condition.
const FieldManager = "runlevel-hooks"

// A State is the progress of the hooks of a Deployment. It is saved between actions in the Deployment's annotation,
// which outlives the record, and in the record, which outlives the Deployment.
type State struct {
	// Template is the hash of the pod template that the Deployment has, and that was rolled out with its hooks.
	Template string `json:"template,omitempty"`
	// Rollout is the hash of the pod template whose rollout is under way; "" if none is.
	Rollout string `json:"rollout,omitempty"`
	// IsInstall is true if the Deployment did not exist when the rollout began.
	IsInstall bool `json:"install,omitempty"`
	// Replicas are the replicas of the Deployment before it was scaled to 0 for its mid hook.
	Replicas *int32 `json:"replicas,omitempty"`
	// Stopped is the hook that has stopped the rollout; nil when the rollout begins again.
	Stopped *StoppedRollout `json:"stopped,omitempty"`
	// Hooks are the progress of the hooks of the rollout, or, when it is complete, their results.
	Hooks map[Stage]HookProgress `json:"hooks,omitempty"`
}

// A StoppedRollout is an abandoned rollout.
type StoppedRollout struct {
	Stage   Stage       `json:"stage"`
	Hash    string      `json:"hash"` // hash of the hook and the template
	Time    metav1.Time `json:"time"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
}

// IsRolledOut reports whether a template was rolled out, and no other rollout has begun since.
func (s State) IsRolledOut(template string) bool { return s.Template == template && s.Rollout == "" }

// IsEmpty reports whether a state has nothing to save.
func (s State) IsEmpty() bool {
	return s.Template == "" && s.Rollout == "" && s.Replicas == nil && len(s.Hooks) == 0
}

// HasIgnored reports whether a hook has failed, and the rollout went on.
func (s State) HasIgnored() bool {
	for _, p := range s.Hooks {
		if p.Result == Ignored {
			return true
		}
	}
	return false
}

// A HookProgress is the progress of one hook of a rollout.
type HookProgress struct {
	Hash     string       `json:"hash,omitempty"`     // hash of the hook and the template
	Began    *metav1.Time `json:"began,omitempty"`    // start of the current try; nil before or after the try
	Attempt  int          `json:"attempt,omitempty"`  // the last finished attempt
	Pod      types.UID    `json:"pod,omitempty"`      // pod of the current attempt, once it was observed
	Failures int          `json:"failures,omitempty"` // failures of the current try
	Failed   *metav1.Time `json:"failed,omitempty"`   // the time of the last failed attempt of this try
	Message  string       `json:"message,omitempty"`  // message of the last failure of the current try
	Result   HookResult   `json:"result,omitempty"`   // "" while it is not known
	By       string       `json:"by,omitempty"`       // the user who has skipped it, or run it again
}

// A HookResult is the result of a hook.
type HookResult string

// The results.
const (
	Succeeded HookResult = "Succeeded"
	Ignored   HookResult = "Ignored" // the hook has failed, and its policy is Ignore
	Skipped   HookResult = "Skipped" // a user skipped the hook
	NotNeeded HookResult = "NotNeeded"
)

// withProgress returns a copy of a state with another progress of one hook.
func (s State) withProgress(stage Stage, progress HookProgress) *State {
	s.Hooks = maps.Clone(s.Hooks)
	if s.Hooks == nil {
		s.Hooks = map[Stage]HookProgress{}
	}
	s.Hooks[stage] = progress
	return &s
}

// withRestartedHooks returns a copy of a state in which hooks without a result begin again.
func (s State) withRestartedHooks() *State {
	next := &s
	for stage, p := range s.Hooks {
		if p.Result == "" {
			next = next.withProgress(stage, HookProgress{Hash: p.Hash, Attempt: p.Attempt, By: p.By})
		}
	}
	return next
}

// Restore returns the saved replicas, if the Deployment is still scaled to 0, and a copy of the state without them. If
// another client has scaled it since, its replicas are kept.
func (s State) Restore(live *appsv1.Deployment) (replicas *int32, next *State) {
	if live != nil && count(live) == 0 {
		replicas = s.Replicas
	}
	s.Replicas = nil
	return replicas, &s
}

// ReadState returns the state in a Deployment's annotation, if it exists and can be read.
func ReadState(live metav1.Object) (state State, exists bool) {
	text, exists := live.GetAnnotations()[StateAnnotation]
	if !exists || json.Unmarshal([]byte(text), &state) != nil {
		return State{}, false
	}
	return state, true
}

// Text returns a state for the annotation.
func (s State) Text() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a state has only strings, numbers and times
	}
	return string(text)
}

// HashTemplate returns the hash of a Deployment's pod template.
func HashTemplate(deployment *appsv1.Deployment) string { return hash(deployment.Spec.Template) }

// hash returns a short hash of values. Names and labels contain it.
func hash(values ...any) string {
	sum := sha256.New()
	for _, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			panic(fmt.Sprintf("a value of Kubernetes is not JSON: %v", err))
		}
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil))[:10]
}
