// Package hook runs the steps of Deployments with lifecycle hooks. A step gathers facts from the cluster, lets package
// deploymenthook decide on the next action, does that action, and gathers the facts again.
//
// The steps are in step.go, and the loop of looks and actions in run.go. observe.go gathers the facts, actions.go has
// the actions, report.go the reports of failures, wait.go the events that wake a waiting hook, and logs.go the logs of
// pods. Start with Settings.Steps.
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

// Settings are shared by the hooks of a run or a preview.
type Settings struct {
	RequestCtx context.Context
	Cluster    *cluster.Cluster
	Applier    *object.Applier
	Journal    *object.Journal
	Release    string
	Overrides  map[kinds.ID]deploymenthook.Override
	Pause      time.Duration // before a rollout that a hook has stopped is tried again; none if it is 0
	IsPreview  bool

	// OnFailure is called with a failed attempt and the last lines of its pod, unless the result of the step reports
	// them.
	OnFailure func(step object.StepID, reason, message string, log []string)
	// OnLogLine is called with each log line of the pod of a hook; logs are not followed if it is nil.
	OnLogLine func(step object.StepID, line string)
}

// A runner runs the hooks of one Deployment, for one apply.
type runner struct {
	Settings
	id       kinds.ID
	manifest *payload.Manifest // nil if the release no longer has the Deployment
	rollout  deploymenthook.Rollout

	observer    observer
	reporter    reporter
	masker      *strings.Replacer // masks values of environment variables
	scaled      *appsv1.Deployment
	running     sync.Mutex
	isOverruled atomic.Bool // read while another step runs
	isChecked   bool        // the Deployment is not another release's
	isChanged   *bool
	refused     *deploymenthook.Refusal
	lastState   string // last state of the pod that the hook waits for
	ran         map[deploymenthook.Stage]deploymenthook.HookResult
	log         []string // the last lines of the last failed pod
	logs        *podLogs
	previewed   preview
}

// newRunner returns a runner for the Deployment of a rollout.
func (s Settings) newRunner(id kinds.ID, m *payload.Manifest, rollout deploymenthook.Rollout) *runner {
	r := &runner{
		Settings: s, id: id, manifest: m, rollout: rollout,
		observer: observer{s.Cluster.Client, id},
		reporter: reporter{s.Cluster, id, func(text string) { s.Applier.Workload(m).Warn(text) }},
		masker:   rollout.Masker(), ran: map[deploymenthook.Stage]deploymenthook.HookResult{},
		logs: &podLogs{client: s.Cluster.Client, hooks: rollout.Hooks, streams: map[types.UID]*stream{}},
	}
	if s.OnLogLine != nil {
		r.logs.onLine = func(stage deploymenthook.Stage, line string) { s.OnLogLine(r.nameOf(stage), line) }
	}
	return r
}

// runnerOf returns a runner for the Deployment of a manifest; nil if it has no hooks and no state of earlier hooks.
func (s Settings) runnerOf(m *payload.Manifest) *runner {
	if m.IsTombstone() || m.GroupVersionKind().GroupKind() != kinds.Deployment {
		return nil
	}
	hooks, _ := deploymenthook.Parse(m.Object()) // problems were reported when the release was read
	if hooks == nil && !s.isRemembered(m) {
		return nil
	}
	desired := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m.Object().Object, desired); err != nil {
		return nil // the API server refuses it, with the reason
	}
	return s.newRunner(m.ID(), m, deploymenthook.Rollout{
		Release: s.Release, Hooks: hooks, Desired: desired, Template: deploymenthook.HashTemplate(desired),
		IsCreateOnly: m.IsCreateOnly(),
		Override:     s.Overrides[m.ID()], Pause: s.Pause,
	})
}

// isRemembered reports whether the record, or, if that was lost, the Deployment has the state of earlier hooks.
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

// isBeingCreated reports whether the present rollout of a Deployment has created it.
func (s Settings) isBeingCreated(m *payload.Manifest) bool {
	state, _ := s.stateOf(m.ID())
	return state.Rollout != "" && state.IsInstall
}

// stateOf returns the recorded state of the hooks of a Deployment.
func (s Settings) stateOf(id kinds.ID) (state deploymenthook.State, exists bool) {
	s.Journal.Read(func(known *record.Record) { state, exists = known.FindHooks(id) })
	return state, exists
}

// saveState notes the state of the hooks of a Deployment in the record.
func (s Settings) saveState(id kinds.ID, state deploymenthook.State) error {
	if s.IsPreview {
		return nil
	}
	return s.Journal.Note(s.RequestCtx, func(known *record.Record) { known.RememberHooks(id, state) })
}

// nameOf returns the name of a hook's step.
func (r *runner) nameOf(stage deploymenthook.Stage) object.StepID {
	id := object.StepOf(r.manifest)
	id.Hook = string(stage)
	return id
}
