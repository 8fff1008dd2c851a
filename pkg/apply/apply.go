// Package apply walks the graph of a payload against a cluster: it applies and deletes objects, waits until objects are
// ready, retries failures that may pass, and reports each step.
//
// It decides neither what to apply (the payload), nor in which order (the graph), nor whether the update is allowed
// (the gate), nor when an object is ready (package ready).
//
// A step is one action, such as the apply of an object: the interface is object.WalkStep, and packages object and hook
// have the kinds of steps. The order of steps is in order.go. A walk, in walk.go, is one loop that hands out steps to
// workers. Its schedule, in nodes.go, knows which steps may begin, and its pendingWaits, in pending.go, have the steps
// that wait. The walk handles results of tries in tries.go, and the ends of waits in walk_waits.go. Package await
// tracks readiness. Start with Run.
//
// A runScope, in scope.go, has what these parts share, and returns the state of the run (state.go). The results of
// steps are in results.go and report.go; events.go, components.go and reporter.go report progress, and explain.go
// explains waits. record_run.go writes the state to the record, and reads it from there.
//
// Preview returns what Run would do: see preview.go.
//
// Its functions take and return types of internal packages: other modules can read it, and not call it.
package apply

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply/hook"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ErrTimeout is the cause of a run that has passed its deadline.
var ErrTimeout = errors.New("the time is up")

// Options configure a run. The options for single objects are in object.Options.
type Options struct {
	object.Options

	// NoWait ends the run when everything is applied, ready or not.
	NoWait bool
	// Timeout limits the time of the run; 30 minutes if it is 0.
	Timeout time.Duration
	// Patience limits the tries of a step and the wait for an object. After it, the run continues with the next steps
	// although the step has failed: a rehearsal reports all failures. If Patience is 0, a failure blocks the steps that
	// need it.
	Patience time.Duration
	// Workers limits the number of objects that are written at a time; a limit by mode if it is 0.
	Workers int
	// Hooks override the lifecycle hooks of Deployments in this run.
	Hooks map[kinds.ID]deploymenthook.Override
	// PauseHooks is the pause before a rollout that a lifecycle hook has stopped is tried again; none if it is 0.
	PauseHooks time.Duration
	// FollowHooks reports each line that the pod of a hook logs.
	FollowHooks bool
	// ReportWaits is the interval between reports of waits; 10 seconds if it is 0.
	ReportWaits time.Duration
	// AskWhy is the interval between diagnoses of pods that don't become ready, which cost requests; ReportWaits if it
	// is 0.
	AskWhy time.Duration
	// OnEvent is called with each event, one after the other; nil for none.
	OnEvent func(Event)
	// OnPreview is called with each change of a preview, one after the other, and may drop its Look; nil for none.
	OnPreview func(*object.Change)
	// ReportStates reports the state of the run as an event, at most ten times a second when it has changed.
	ReportStates bool
	// Keeper keeps the release in place. If it is nil, the run ends at its deadline.
	Keeper Keeper

	newSteps func(*object.Applier) stepMaker // set by tests only
}

// A Keeper keeps objects in place that a run has applied. With a Keeper, a run continues after its deadline until all
// objects are ready, unless an object can't be applied.
type Keeper interface {
	// Take is called with the change of each completed step. The run does not write its object again, even if it is
	// deleted.
	Take(object.Change)
	// NotReady is called with a report when the deadline has passed, or an object has failed.
	NotReady(*Report)
}

// workers limits the number of objects that are written at a time, by mode.
var workers = map[graph.Mode]int{graph.Install: 48, graph.Update: 16, graph.Reconcile: 8}

// withDefaults returns options with defaults for fields that are not set.
func (o Options) withDefaults() Options {
	o.Options = o.Options.WithDefaults()
	o.Timeout = cmp.Or(o.Timeout, 30*time.Minute)
	o.Workers = cmp.Or(o.Workers, workers[o.Mode])
	o.ReportWaits = cmp.Or(o.ReportWaits, 10*time.Second)
	o.AskWhy = cmp.Or(o.AskWhy, o.ReportWaits)
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	return o
}

// standardOf returns the standard for the readiness of an object. A post hook requires a complete rollout.
func (o Options) standardOf(m *payload.Manifest) ready.Standard {
	if hooks, _ := deploymenthook.Parse(m.Object()); hooks.Of(deploymenthook.Post) != nil {
		return ready.Full
	}
	return o.Standard
}

// hooks returns the settings of the hooks of a run or a preview.
func (o Options) hooks(requestCtx context.Context, c *cluster.Cluster, applier *object.Applier) hook.Settings {
	return hook.Settings{
		RequestCtx: requestCtx, Cluster: c, Applier: applier, Journal: o.Journal, Release: o.Release,
		Overrides: o.Hooks, Pause: o.PauseHooks,
	}
}

// A Report is the result of a run.
type Report struct {
	Mode     graph.Mode
	Changes  []object.Change // one for each step, in the order of the payload; a manifest with hooks has several steps
	Waits    []Wait          // left at the end of the run
	Warnings []Warning
	Err      error       // nil if all is done
	Left     *record.Run // the state at the end; nil if all is done

	Fingerprints *fingerprint.Cache // fingerprints of objects applied in this run or before

	Took map[string]time.Duration // keyed by completed component: "level NN, component"
}

// A Warning is a warning of the API server.
type Warning struct {
	Text    string          `json:"text"`
	Files   []string        `json:"files"`
	Objects []object.StepID `json:"-"`
}
