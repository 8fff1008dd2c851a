// Package apply walks the graph of a payload against a cluster: it applies and deletes,
// waits until what must be ready is, tries again what may heal, and tells of each step.
// //
// It decides neither what to apply (the payload), nor in which order (the graph), nor
// whether it may (the gate). It does not know when an object is ready either: package
// ready does.
//
// Run is the call to start from; run.go has its state. The order is in order.go and beside.go. The walk is in
// walk.go: one loop that hands out steps to workers, in the order of queue.go, and parks those that wait. A try
// of a step is in retry.go: package object does it, and package await tracks readiness. What is told of nodes is in
// nodes.go, of waiting in waits.go and why.go, to those who look from elsewhere in standing.go, and the outcome in
// report.go. What goes on after the time is up is in late.go.
//
// Preview says what Run would do: see preview.go.
package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/ownership"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/ready"
	"github.com/runlevel/runlevel/pkg/record"
)

// ErrTimeout is why a run ended that took too long.
var ErrTimeout = errors.New("the time is up")

// Options say how to apply.
type Options struct {
	Release  string     // the value of the label that objects get
	Version  string     // of the payload, for the record
	Mode     graph.Mode // Update, if it is empty
	Attempt  int        // how often Reconcile was tried before: see graph.Options
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
	// TellWaits is how often waits are told of; every 10 seconds if it is 0.
	TellWaits time.Duration
	// AskWhy is how often pods are asked why they don't come up, which costs requests; as
	// often as waits are told of if it is 0.
	AskWhy time.Duration
	// Lock is that of the release, if it is held.
	Lock *record.Hold
	// Journal keeps what must outlive this run.
	Journal *object.Journal
	// Tell is told of each step, one after the other. Nil tells nobody.
	Tell func(Event)
	// Fingerprints are where those of applied objects go; a new set if it is nil. A Repairer shares
	// them.
	Fingerprints *inventory.Fingerprints
	// Done is told of each object that is applied. The run does nothing more to it.
	Done func(object.Change)
	// Late is told the report of a run that has to end because objects are not ready: the time is
	// up, or one has failed. The run then goes on without a timeout until all is ready. It ends all
	// the same if Late is nil, or if an object can't be applied.
	Late func(*Report)

	lookCounts time.Duration // object.LookCounts, unless a test says otherwise
}

// workers are how many objects are written at a time, by mode.
var workers = map[graph.Mode]int{graph.Install: 48, graph.Update: 16, graph.Reconcile: 8}

// withDefaults fills in what was not said.
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
	o.AdoptFrom = append(ownership.Managers(), o.AdoptFrom...)
	if o.lookCounts == 0 {
		o.lookCounts = object.LookCounts
	}
	if o.TellWaits == 0 {
		o.TellWaits = 10 * time.Second
	}
	if o.AskWhy == 0 {
		o.AskWhy = o.TellWaits
	}
	if o.Tell == nil {
		o.Tell = func(Event) {}
	}
	if o.Done == nil {
		o.Done = func(object.Change) {}
	}
	if o.Fingerprints == nil {
		o.Fingerprints = inventory.ReadFingerprints(nil)
	}
	return o
}

// Objects returns the options for single objects.
func (o Options) Objects() object.Options { return o.withDefaults().objects() }

func (o Options) objects() object.Options {
	return object.Options{
		Release: o.Release, Version: o.Version, Mode: o.Mode, Standard: o.Standard, DropUnknownFields: o.DropUnknownFields,
		Full: o.Full, AdoptFrom: o.AdoptFrom, LookCounts: o.lookCounts, Journal: o.Journal, Lock: o.Lock, Fingerprints: o.Fingerprints,
	}
}

// A Report is what came of a run.
type Report struct {
	Mode     graph.Mode
	Changes  []object.Change // one for each manifest, in the order of the payload
	Waits    []Wait          // that were left when the run ended
	Warnings []Warning
	Err      error       // why it is not all done; nil if it is
	Left     *record.Run // how it stood at the end, if not all is done

	Fingerprints *inventory.Fingerprints // of what was applied, now or before

	Took map[string]time.Duration // by node that is done: "level NN, component"
}

// A Warning is one of the server's, once for each text.
type Warning struct {
	Text  string   `json:"text"`
	Files []string `json:"files"`
}

// Run applies a payload. Before is what the cluster had until then, of the kinds of the
// payload. A run that ends early says what is not done. The end of ctx lets requests that
// are on their way arrive, unless the lock is lost.
func Run(ctx context.Context, c *cluster.Cluster, release *payload.Payload, before *inventory.Inventory, options Options) *Report {
	options = options.withDefaults()
	timed, cancel := context.WithTimeoutCause(ctx, options.Timeout, fmt.Errorf("%w after %s", ErrTimeout, options.Timeout))
	defer cancel()
	if options.Late == nil {
		ctx = timed
	}
	r := newRun(c, before, options)
	defer r.close()
	r.start(ctx, release.Manifests)
	if err := r.plan(release.Manifests); err != nil {
		return &Report{Mode: options.Mode, Err: err}
	}
	if isDone := r.attempt(timed); !isDone && r.mayBeLate(ctx) {
		r.late(timed)
		r.attempt(ctx)
		timed = ctx
	}
	r.tracker.Close()
	r.notes.Wait()
	return r.report(timed)
}

// attempt walks the graph and waits until all is ready. It says whether that is so.
func (r *run) attempt(ctx context.Context) (isDone bool) {
	stopTelling, stopNoting := r.tellWaits(ctx), r.noteStanding(ctx)
	defer stopNoting()
	defer stopTelling()
	r.walk(ctx)
	return r.awaitAll(ctx)
}
