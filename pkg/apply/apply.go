// Package apply walks the graph of a payload against a cluster: it applies and deletes objects, waits until what must
// be ready is, tries again what has failed and may succeed, and reports each step.
//
// It decides neither what to apply (the payload), nor in which order (the graph), nor whether it may (the gate). It
// does not know when an object is ready either: package ready does.
//
// Run is the call to start from. A step is one action, such as the apply of an object: the interface is
// object.WalkStep, and packages object and hook have the kinds of steps. The order of steps is in order.go, and the
// walk through them in walk.go: one loop that hands out steps to workers, and parks those that wait, in parking.go.
// Package await tracks readiness. What came of steps is in results.go and report.go; what is reported meanwhile in
// events.go, components.go, waits.go and why.go, and in the record by record_run.go.
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
	Release  string     // the value of the label that objects get
	Version  string     // of the payload, for the record
	Mode     graph.Mode // Update, if it is empty
	Standard ready.Standard
	// NoWait ends when everything is applied, ready or not.
	NoWait bool
	// Timeout is how long it may take; 30 minutes if it is 0.
	Timeout time.Duration
	// Workers are how many objects are written at a time; what fits the mode if it is 0.
	Workers int
	// DropUnknownFields leaves out what the cluster's schema does not have, as the
	// cluster-version operator does. Else such an object is refused.
	DropUnknownFields bool
	// Full applies each object, also those that can't have changed since they were applied.
	Full bool
	// AdoptFrom are managers whose fields become ours when an object is applied for the first
	// time, beside those of ownership.Managers.
	AdoptFrom []string
	// Hooks are what a user wants of the lifecycle hooks of Deployments in this run.
	Hooks map[kinds.ID]deploymenthook.Override
	// ReportWaits is how often waits are reported; every 10 seconds if it is 0.
	ReportWaits time.Duration
	// AskWhy is how often it is found out why pods don't become ready, which costs requests; as
	// often as waits are reported if it is 0.
	AskWhy time.Duration
	// Lock is that of the release, if it is held.
	Lock *lock.Hold
	// Journal keeps what must outlive this run.
	Journal *object.Journal
	// OnEvent is called with each event, one after the other. It may be nil.
	OnEvent func(Event)
	// Fingerprints are where those of applied objects go; a new set if it is nil. A Repairer shares
	// them.
	Fingerprints *fingerprint.Cache
	// Done is called with each step that is done. The run does nothing more to its object. If Done is nil, the run
	// applies objects again that are deleted while it waits for them.
	Done func(object.Change)
	// NotReady is called with the report of a run that has to end because objects are not ready: the deadline has
	// passed, or an object has failed. The run then goes on without a deadline until all objects are ready. It ends
	// all the same if NotReady is nil, or if an object can't be applied.
	NotReady func(*Report)

	// PauseHooks is how long a rollout is left alone that a lifecycle hook has stopped; not at all if it is 0.
	PauseHooks time.Duration
	// FollowHooks reports each line that the pod of a hook logs.
	FollowHooks bool

	lookCounts time.Duration          // object.LookCounts, unless a test sets another one
	newSteps   func(r *run) stepMaker // of a test; nil else
}

// workers are how many objects are written at a time, by mode.
var workers = map[graph.Mode]int{graph.Install: 48, graph.Update: 16, graph.Reconcile: 8}

// withDefaults returns options with defaults for what is not set.
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

// standardOf returns the standard by which an object is awaited. There is no post hook before a rollout is complete.
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
		Release: o.Release, Version: o.Version, Mode: o.Mode, Standard: o.Standard, DropUnknownFields: o.DropUnknownFields, Full: o.Full,
		AdoptFrom: o.AdoptFrom, Manifests: manifests, LookCounts: o.lookCounts, Journal: o.Journal, Lock: o.Lock, Fingerprints: o.Fingerprints,
	}
}

// hooks returns what the hooks of a run, or of a preview, share.
func (o Options) hooks(requests context.Context, c *cluster.Cluster, applier *object.Applier) hook.Settings {
	return hook.Settings{
		Requests: requests, Cluster: c, Applier: applier, Journal: o.Journal, Release: o.Release, Overrides: o.Hooks, Pause: o.PauseHooks,
	}
}

// A Report is what came of a run.
type Report struct {
	Mode     graph.Mode
	Changes  []object.Change // one for each step, in the order of the payload; a manifest takes more than one if it has hooks
	Waits    []Wait          // that were left when the run ended
	Warnings []Warning
	Err      error       // why it is not all done; nil if it is
	Left     *record.Run // how it stood at the end, if not all is done

	Fingerprints *fingerprint.Cache // of what was applied, now or before

	Took map[string]time.Duration // by node that is done: "level NN, component"
}

// A Warning is one of the server's, once for each text.
type Warning struct {
	Text  string   `json:"text"`
	Files []string `json:"files"`
}
