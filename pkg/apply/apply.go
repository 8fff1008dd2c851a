// Package apply walks the graph of a payload against a cluster: it applies and deletes objects, waits until objects are
// ready, retries failures that may pass, and reports each step.
//
// It decides neither what to apply (the payload), nor in which order (the graph), nor whether the update is allowed
// (the gate), nor when an object is ready (package ready).
//
// Run is the call to start from. A step is one action, such as the apply of an object: the interface is
// object.WalkStep, and packages object and hook have the kinds of steps. The order of steps is in order.go, and the
// walk through them in walk.go: one loop that hands out steps to workers, and parks those that wait, in parking.go.
// Package await tracks readiness. The results of steps are in results.go and report.go; progress is reported by
// events.go, components.go, waits.go and why.go. The state of a run is in state.go; record_run.go writes it to the
// record, and reads it from there.
//
// Preview returns what Run would do: see preview.go.
//
// Its functions take and return types of internal packages: other modules can read it, and not call it.
package apply

import (
	"context"
	"errors"
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/pkg/apply/hook"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ErrTimeout is the cause of a run that has passed its deadline.
var ErrTimeout = errors.New("the time is up")

// Options are how to apply.
type Options struct {
	Release  string     // the value of the release label of objects
	Version  string     // of the payload, for the record
	Mode     graph.Mode // Update if empty
	Standard ready.Standard
	// NoWait ends the run when everything is applied, ready or not.
	NoWait bool
	// Timeout is how long the run may take; 30 minutes if it is 0.
	Timeout time.Duration
	// Patience is how long the run tries a step, or waits for an object, before it goes on with what comes after it all
	// the same: the steps that have failed hold nothing up. It is for a rehearsal, which is to find all failures. 0
	// holds up.
	Patience time.Duration
	// Workers is how many objects are written at a time; a number by mode if it is 0.
	Workers int
	// DropUnknownFields leaves out fields that the cluster's schema does not have, as the
	// cluster-version operator does. Otherwise such an object is refused.
	DropUnknownFields bool
	// DropHint is how a user sets DropUnknownFields, with a flag for example: refusals that suggest it end with the
	// hint.
	DropHint string
	// Full applies each object, also those that can't have changed since they were applied.
	Full bool
	// AdoptFrom are field managers, beside ownership.Managers, whose fields Runlevel takes over when it
	// applies an object for the first time.
	AdoptFrom []string
	// RemovesForeign reports whether fields of a manager that the release does not have are removed; nil removes none.
	RemovesForeign func(id kinds.ID, manager string) bool
	// Refusals are why an API server would refuse objects, as far as that is known without the cluster. A preview takes
	// them for what it can't ask the cluster; a run does not use them.
	Refusals map[object.StepID][]fields.FieldRefusal
	// Hooks override the lifecycle hooks of Deployments in this run.
	Hooks map[kinds.ID]deploymenthook.Override
	// ReportWaits is how often waits are reported; every 10 seconds if it is 0.
	ReportWaits time.Duration
	// AskWhy is how often pods that don't become ready are diagnosed, which costs requests; as
	// often as waits are reported if it is 0.
	AskWhy time.Duration
	// Lock is the lock of the release, if it is held.
	Lock *lock.Hold
	// Journal is the record of the release, which outlives this run.
	Journal *object.Journal
	// OnEvent is called with each event, one after the other. It may be nil.
	OnEvent func(Event)
	// OnState is called with the state of the run, at most ten times a second when it has changed. It may be nil.
	OnState func(*RunState)
	// Fingerprints collects the fingerprints of applied objects; a new cache if it is nil. A Repairer shares it.
	Fingerprints *fingerprint.Cache
	// Done is called with each step that is done, and takes over its object: the run does not write it again. If Done
	// is nil, the run applies objects again that are deleted while it waits for them.
	Done func(object.Change)
	// NotReady is called with a report when the deadline has passed, or an object has failed. The run then goes on
	// without a deadline until all objects are ready. It ends instead if NotReady is nil, or an object can't be
	// applied.
	NotReady func(*Report)

	// PauseHooks is the pause before a rollout that a lifecycle hook has stopped is tried again; none if it is 0.
	PauseHooks time.Duration
	// FollowHooks reports each line that the pod of a hook logs.
	FollowHooks bool

	lookCounts time.Duration          // object.LookCounts, except in tests
	newSteps   func(r *run) stepMaker // set by tests only
}

// workers is how many objects are written at a time, by mode.
var workers = map[graph.Mode]int{graph.Install: 48, graph.Update: 16, graph.Reconcile: 8}

// withDefaults returns options with defaults for fields that are not set.
func (o Options) withDefaults() Options {
	if o.Mode == "" {
		o.Mode = graph.Update
	}
	if o.Standard == "" {
		o.Standard = ready.Full
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Minute
	}
	if o.Workers == 0 {
		o.Workers = workers[o.Mode]
	}
	o.AdoptFrom = append(ownership.DefaultManagers(), o.AdoptFrom...)
	if o.lookCounts == 0 {
		o.lookCounts = object.LookCounts
	}
	if o.ReportWaits == 0 {
		o.ReportWaits = 10 * time.Second
	}
	if o.AskWhy == 0 {
		o.AskWhy = o.ReportWaits
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	if o.Fingerprints == nil {
		o.Fingerprints = fingerprint.Read(nil)
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

// Objects returns the options for single objects.
func (o Options) Objects() object.Options { return o.withDefaults().objects(nil) }

func (o Options) objects(manifests []*payload.Manifest) object.Options {
	return object.Options{
		Release: o.Release, Version: o.Version, Mode: o.Mode, Standard: o.Standard,
		DropUnknownFields: o.DropUnknownFields, DropHint: o.DropHint,
		Full: o.Full, AdoptFrom: o.AdoptFrom, RemovesForeign: o.RemovesForeign, Refusals: o.Refusals,
		Manifests: manifests, LookCounts: o.lookCounts,
		Journal: o.Journal, Lock: o.Lock, Fingerprints: o.Fingerprints,
	}
}

// hooks returns the settings of the hooks of a run or a preview.
func (o Options) hooks(requests context.Context, c *cluster.Cluster, applier *object.Applier) hook.Settings {
	return hook.Settings{
		Requests: requests, Cluster: c, Applier: applier, Journal: o.Journal, Release: o.Release, Overrides: o.Hooks,
		Pause: o.PauseHooks,
	}
}

// A Report is the result of a run.
type Report struct {
	Mode     graph.Mode
	Changes  []object.Change // by step, in the order of the payload; a manifest with hooks has several steps
	Waits    []Wait          // left at the end of the run
	Warnings []Warning
	Err      error       // nil if all is done
	Left     *record.Run // the state at the end; nil if all is done

	Fingerprints *fingerprint.Cache // of objects applied in this run or before

	Took map[string]time.Duration // by completed component: "level NN, component"
}

// A Warning is a warning of the API server.
type Warning struct {
	Text    string          `json:"text"`
	Files   []string        `json:"files"`
	Objects []object.StepID `json:"-"`
}
