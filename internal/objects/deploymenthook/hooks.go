// Package deploymenthook decides about the hooks of Deployments: commands that run in pods of their own before, in the
// middle of, and after a rollout. It is pure: it parses the annotation, and returns the next action for the observed
// facts.
//
// Parse, in parse.go, reads the hooks of a Deployment: decode.go decodes the annotation strictly, and check.go checks
// it against the Deployment. Rollout.Next, in rollout.go, takes the RolloutFacts observed in the cluster, and returns
// the next action of a rollout. NextPod, there as well, returns the pod that a hook runs in, and State, in state.go, is
// saved from one action to the next.
package deploymenthook

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

const (
	// Annotation has the hooks of a Deployment, as YAML.
	Annotation = "runlevel.dev/lifecycle-hooks"
	// StateAnnotation has the State of the hooks on the live Deployment. No manifest may have it.
	StateAnnotation = "runlevel.dev/lifecycle-hooks-state"
)

// DefaultTimeoutSeconds limits the time of a pod of a hook if timeoutSeconds is not set.
const DefaultTimeoutSeconds = 600

// A Stage is the time in a rollout at which a hook runs.
type Stage string

// The stages, in the order of a rollout.
const (
	Pre  Stage = "pre"  // before anything of the Deployment changes
	Mid  Stage = "mid"  // when the old pods have ended, before the new ones are created
	Post Stage = "post" // when the rollout is complete
)

// Stages are all stages, in the order of a rollout.
var Stages = []Stage{Pre, Mid, Post}

// Hooks are the content of a Deployment's annotation.
type Hooks struct {
	Pre  *Hook `json:"pre,omitempty"`
	Mid  *Hook `json:"mid,omitempty"`
	Post *Hook `json:"post,omitempty"`
}

// Of returns the hook of a stage; nil if there is none.
func (h *Hooks) Of(stage Stage) *Hook {
	switch {
	case h == nil:
		return nil
	case stage == Pre:
		return h.Pre
	case stage == Mid:
		return h.Mid
	default:
		return h.Post
	}
}

// Stages returns the stages that have a hook, in the order of a rollout.
func (h *Hooks) Stages() []Stage {
	return slices.DeleteFunc(slices.Clone(Stages), func(stage Stage) bool { return h.Of(stage) == nil })
}

// A FailurePolicy is the reaction to the failure of a hook.
type FailurePolicy string

// The failure policies.
const (
	Abort  FailurePolicy = "Abort"  // the rollout stops
	Ignore FailurePolicy = "Ignore" // the rollout continues
	Retry  FailurePolicy = "Retry"  // the hook runs again, until the progress deadline or BackoffLimit
)

// A KeepPolicy selects the pods of a hook that are kept after they have ended.
type KeepPolicy string

// The policies for pods that have ended.
const (
	KeepFailed KeepPolicy = "Failed"
	KeepNever  KeepPolicy = "Never"
	KeepAlways KeepPolicy = "Always"
)

// A Hook is a command that runs in a separate pod at one stage of a rollout.
type Hook struct {
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"` // default: Retry
	ExecNewPod    *ExecNewPod   `json:"execNewPod,omitempty"`
	// TimeoutSeconds limits the time until a pod starts, and then until it ends. The default is 600.
	TimeoutSeconds *int64 `json:"timeoutSeconds,omitempty"`
	// BackoffLimit limits how often Retry runs the hook again; nil for any number until the progress deadline.
	BackoffLimit       *int32                       `json:"backoffLimit,omitempty"`
	ServiceAccountName string                       `json:"serviceAccountName,omitempty"` // default: the template's
	Resources          *corev1.ResourceRequirements `json:"resources,omitempty"`          // default: the container's
	Keep               KeepPolicy                   `json:"keep,omitempty"`               // default: Failed
}

// Policy returns the failure policy; Retry if it is not set.
func (h *Hook) Policy() FailurePolicy { return cmp.Or(h.FailurePolicy, Retry) }

// Timeout returns how long one pod may take to start, and then to end.
func (h *Hook) Timeout() time.Duration {
	return time.Duration(ptr.Deref(h.TimeoutSeconds, DefaultTimeoutSeconds)) * time.Second
}

// Keeps returns which pods are kept after they have ended; KeepFailed if it is not set.
func (h *Hook) Keeps() KeepPolicy { return cmp.Or(h.Keep, KeepFailed) }

// ExecNewPod is the pod of a hook, as far as it differs from the Deployment's pods.
type ExecNewPod struct {
	ContainerName string          `json:"containerName,omitempty"` // the container of the template whose image runs
	Command       []string        `json:"command,omitempty"`
	Args          []string        `json:"args,omitempty"`
	Env           []corev1.EnvVar `json:"env,omitempty"`     // appended to the container's
	Volumes       []string        `json:"volumes,omitempty"` // template volumes to mount; others are not mounted
}
