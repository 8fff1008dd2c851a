// Package hook has the steps of Deployments with lifecycle hooks. What to do next is decided by package deploymenthook, of what
// this package has looked at; it does that on the cluster, and looks again.
//
// Settings.Steps is the call to start from. The steps are in step.go, and the loop of looks and actions in run.go.
// observe.go and workload.go gather what there is, actions.go has the actions, wait.go what wakes a hook that waits, and
// logs.go the logs of pods.
package hook

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// FailedCondition is the condition of a Deployment whose hook has failed. It is False again when the hook has succeeded.
const FailedCondition = "LifecycleHookFailed"

// Settings are what the hooks of a run, or of a preview, share.
type Settings struct {
	Requests  context.Context
	Cluster   *cluster.Cluster
	Applier   *object.Applier
	Journal   *object.Journal
	Release   string
	Overrides map[kinds.ID]deploymenthook.Override
	Pause     time.Duration // how long a rollout is left alone that a hook has stopped; not at all if it is 0
	IsPreview bool

	// Failed is called with an attempt that has failed, and the last lines of its pod, unless the end of the step reports it.
	Failed func(step object.StepID, reason, message string, log []string)
	// Logged is called with each line that the pod of a hook logs; logs are not followed if it is nil.
	Logged func(step object.StepID, line string)
}

// A runner runs the hooks of one Deployment, for one apply.
type runner struct {
	Settings
	id       kinds.ID
	manifest *payload.Manifest // nil of a Deployment that the release has no more
	rollout  deploymenthook.Rollout

	masker      *strings.Replacer // of values of environment variables
	workload    workload
	scaled      *appsv1.Deployment
	running     sync.Mutex
	isOverruled atomic.Bool // it is asked while another step runs
	isChecked   bool        // whether the Deployment is another release's
	isChanged   *bool
	refused     *deploymenthook.Refusal
	lastState   string // of the pod that is waited for
	ran         map[deploymenthook.Stage]deploymenthook.HookResult
	log         []string // the last lines of the pod that has failed last
	logs        *podLogs
	previewed   preview
}

// newRunner returns a runner for the Deployment of a rollout.
func (s Settings) newRunner(id kinds.ID, m *payload.Manifest, rollout deploymenthook.Rollout) *runner {
	r := &runner{
		Settings: s, id: id, manifest: m, rollout: rollout,
		masker: rollout.Masker(), workload: workload{s.Cluster.Client, id.Namespace}, ran: map[deploymenthook.Stage]deploymenthook.HookResult{},
		logs: &podLogs{client: s.Cluster.Client, hooks: rollout.Hooks, streams: map[types.UID]*stream{}},
	}
	if s.Logged != nil {
		r.logs.logged = func(stage deploymenthook.Stage, line string) { s.Logged(r.nameOf(stage), line) }
	}
	return r
}

// runnerOf returns a runner for the Deployment of a manifest; nil if that has no hooks, and nothing is left of earlier ones.
func (s Settings) runnerOf(m *payload.Manifest) *runner {
	if m.IsTombstone() || m.GroupVersionKind().GroupKind() != kinds.Deployment {
		return nil
	}
	hooks, _ := deploymenthook.Parse(m.Object()) // their problems were reported when the release was read
	if hooks == nil && !s.isRemembered(m) {
		return nil
	}
	desired := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m.Object().Object, desired); err != nil {
		return nil // the API server refuses it, with the reason
	}
	return s.newRunner(m.ID(), m, deploymenthook.Rollout{
		Release: s.Release, Hooks: hooks, Desired: desired, Template: deploymenthook.HashTemplate(desired), IsCreateOnly: m.IsCreateOnly(),
		Override: s.Overrides[m.ID()], Pause: s.Pause,
	})
}

// isRemembered reports whether earlier hooks of a Deployment are remembered: by the record, or, if that was lost, by the
// Deployment itself.
func (s Settings) isRemembered(m *payload.Manifest) bool {
	if _, exists := s.stateOf(m.ID()); exists {
		return true
	}
	live := s.Applier.Before(m)
	if live == nil {
		return false
	}
	_, exists := deploymenthook.ReadState(live)
	return exists
}

// isBeingCreated reports whether a rollout is under way that has created a Deployment.
func (s Settings) isBeingCreated(m *payload.Manifest) bool {
	state, _ := s.stateOf(m.ID())
	return state.Rollout != "" && state.IsInstall
}

// stateOf returns what the record has of the hooks of a Deployment.
func (s Settings) stateOf(id kinds.ID) (state deploymenthook.State, exists bool) {
	s.Journal.Read(func(known *record.Record) { state, exists = known.FindHooks(id) })
	return state, exists
}

// saveState notes the state of the hooks of a Deployment in the record.
func (s Settings) saveState(id kinds.ID, state deploymenthook.State) error {
	if s.IsPreview {
		return nil
	}
	return s.Journal.Note(s.Requests, func(known *record.Record) { known.RememberHooks(id, state) })
}

// nameOf returns the name of a hook's step.
func (r *runner) nameOf(stage deploymenthook.Stage) object.StepID {
	id := object.StepOf(r.manifest)
	id.Hook = string(stage)
	return id
}

// warn passes on a warning about the Deployment.
func (r *runner) warn(text string) { r.Applier.Warn(r.manifest, text) }
