// Package rollout is the story of one apply, from a loaded payload to an outcome: take the
// lock, find out what is there, judge whether it may, order, apply, and note what came of
// it. The command line and the operator both call it.
//
// It does little itself: each part is a package of its own, and the outcome is a value
// from which all else is told.
//
// Run is the call to start from. Preview finds out what it would do, and Look only what it
// would find; both change nothing.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/reason"
	"github.com/runlevel/runlevel/pkg/record"
)

// DefaultNamespace is where records are, unless somebody wants them elsewhere.
const DefaultNamespace = "runlevel-system"

// Options say how to roll out. Apply.Mode is found out when it is empty.
type Options struct {
	Namespace string // of the record and the lock; DefaultNamespace if it is empty
	Source    string // where the payload is from, for the history
	Force     bool   // go on although a gate says no
	Lock      record.Lock
	Apply     apply.Options
	// Begins is told what is about to be done, before anything is written. An error of it ends it
	// there.
	Begins func(*Outcome) error
	// Keep begins to keep in place what is applied: it is called under the lock before the apply,
	// with the connection and the options of it. The rollout then ends only with its context, unless
	// an object can't be applied. Nil keeps nothing.
	Keep func(ctx context.Context, c *cluster.Cluster, options apply.Options) Keeper
	// Told is told the outcome of what is kept in place: when all is ready, and before that, once,
	// when it is not ready in time.
	Told func(*Outcome)
}

// An Outcome is what came of it.
type Outcome struct {
	Release  string
	Version  string
	Previous string // the version that was applied before, if any was
	Mode     graph.Mode
	Findings []precondition.Finding // of the gate
	Forced   []string               // gates that were overridden
	Report   *apply.Report          // nil if nothing was begun
	Deletes  []precondition.Delete  // that are pending at the end
	Orphans  []Orphan
	Notes    []string // on what could not be found out
	Took     time.Duration
	Earlier  record.Durations // of the last run of this mode that was completed
	IsSame   bool             // what was begun last was the same version, with the same content
	Err      error            // why it is not all done
}

// A rollout is one run.
type rollout struct {
	cluster *cluster.Cluster
	payload *payload.Payload
	options Options
	store   *record.Store
	journal *object.Journal
	record  *record.Record
	before  *inventory.Inventory
	outcome *Outcome
	began   time.Time
	isLate  bool // not all was ready in time
}

// Run applies a payload to a cluster.
func Run(ctx context.Context, c *cluster.Cluster, release *payload.Payload, options Options) *Outcome {
	r := newRollout(c, release, options)
	r.outcome.Err = r.store.Locked(ctx, options.Lock, r.locked)
	return r.outcome
}

// locked is what is done under the lock: from here on, each write asks whether it counts.
func (r *rollout) locked(ctx context.Context, lock *record.Hold) error {
	r.began = time.Now() // waiting for another applier is not our time
	fenced, err := r.cluster.Fenced(lock.Check)
	if err != nil {
		return err
	}
	r.connect(fenced)
	r.options.Apply.Lock = lock
	err = r.run(ctx)
	if r.outcome.Took == 0 { // else it was told
		r.outcome.Took = time.Since(r.began)
	}
	return err
}

// Look finds out what Run would find, and what the gate says. It changes nothing.
func Look(ctx context.Context, c *cluster.Cluster, release *payload.Payload, options Options) *Outcome {
	r := newRollout(c, release, options)
	r.outcome.Err = r.look(ctx, r.store)
	return r.outcome
}

// Preview finds out what Run would do, and changes nothing. What the gate says is part of the
// outcome, whether it refuses or not.
func Preview(ctx context.Context, c *cluster.Cluster, release *payload.Payload, options Options) *Outcome {
	began := time.Now()
	r := newRollout(c, release, options)
	defer func() { r.outcome.Took = time.Since(began) }()
	if r.outcome.Err = r.look(ctx, r.store); r.outcome.Err != nil {
		return r.outcome
	}
	var refused error
	if blocking := precondition.Blocking(r.outcome.Findings); len(blocking) > 0 && !options.Force {
		refused = precondition.Refuse(blocking)
	} else {
		r.outcome.Forced = precondition.Names(blocking)
	}
	if options.Begins != nil {
		refused = errors.Join(refused, options.Begins(r.outcome))
	}
	r.outcome.Report = apply.Preview(ctx, c, release, r.before, r.applyOptions())
	r.outcome.Orphans = r.orphans(ctx)
	r.outcome.Deletes = slices.DeleteFunc(r.outcome.Deletes, r.isNotPending)
	r.outcome.Err = errors.Join(refused, r.outcome.Report.Err)
	return r.outcome
}

func newRollout(c *cluster.Cluster, release *payload.Payload, options Options) *rollout {
	if options.Namespace == "" {
		options.Namespace = DefaultNamespace
	}
	r := &rollout{payload: release, options: options, outcome: &Outcome{Release: release.Name, Version: release.Version}}
	r.connect(c)
	return r
}

// connect goes on with a connection to the cluster. The record is read and written by it, too.
func (r *rollout) connect(c *cluster.Cluster) {
	r.cluster = c
	r.store = record.NewStore(c.Client, r.options.Namespace, r.payload.Name)
	r.store.Now = c.Now // else whoever reads the lock would count its age with another clock
}

// run does what there is to do.
func (r *rollout) run(ctx context.Context) error {
	if err := r.look(ctx, nil); err != nil {
		return err
	}
	blocking := precondition.Blocking(r.outcome.Findings)
	if len(blocking) > 0 && !r.options.Force {
		return precondition.Refuse(blocking)
	}
	r.outcome.Forced = precondition.Names(blocking)
	if r.options.Begins != nil {
		if err := r.options.Begins(r.outcome); err != nil {
			return err
		}
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	if r.options.Keep != nil {
		return r.keep(ctx)
	}
	return r.finish(ctx, apply.Run(ctx, r.cluster, r.payload, r.before, r.applyOptions()))
}

// finish takes in what came of an apply, and notes it.
func (r *rollout) finish(ctx context.Context, report *apply.Report) error {
	r.outcome.Report = report
	held, stop := r.options.Apply.Lock.Requests(ctx)
	defer stop()
	if held.Err() == nil && !errors.Is(r.outcome.Report.Err, record.ErrLost) { // whose context ends a moment later
		return errors.Join(r.outcome.Report.Err, r.end(held))
	}
	if r.outcome.Report.Err == nil { // all is done, and the record can't say so: it is somebody else's now
		return context.Cause(held)
	}
	return r.outcome.Report.Err
}

// applyOptions are those of an apply, with what was found out.
func (r *rollout) applyOptions() apply.Options {
	options := r.options.Apply
	options.Release, options.Version, options.Mode, options.Journal = r.payload.Name, r.payload.Version, r.outcome.Mode, r.journal
	return options
}

// look finds out how things stand, and asks the gate. It is given the store to ask it who
// holds the lock, if we don't.
func (r *rollout) look(ctx context.Context, store *record.Store) error {
	known, _, err := r.store.Load(ctx)
	if store != nil && reason.Of(err) == record.ReasonDenied {
		r.outcome.Notes = append(r.outcome.Notes, "what was applied before: this user may not read the record of the release, so the mode is a guess, and so is what is left behind")
		known, err = &record.Record{Release: r.payload.Name}, nil // the gate will say which right is missing
	}
	if err != nil {
		return err
	}
	r.record, r.journal = known, object.NewJournal(r.store, known)
	if r.before, err = inventory.Take(ctx, r.cluster, r.places(), r.matters()); err != nil {
		return err
	}
	if applied := known.Applied(); applied != nil {
		r.outcome.Previous = applied.Version
	}
	facts, err := precondition.Gather(ctx, r.cluster, precondition.Question{
		Payload: r.payload, Before: r.before, Record: known, Namespace: r.options.Namespace, Standard: r.options.Apply.Standard, Store: store,
	})
	if err != nil {
		return err
	}
	r.outcome.Findings, r.outcome.Deletes = precondition.Evaluate(facts), facts.Deletes
	r.outcome.Mode = r.mode()
	r.outcome.Earlier = known.Durations[string(r.outcome.Mode)]
	if loss := r.store.Loss(); loss != "" {
		r.outcome.Notes = append(r.outcome.Notes, loss)
	}
	newest := known.Newest()
	r.outcome.IsSame = newest != nil && newest.Hash == r.payload.Hash && newest.Version == r.payload.Version
	r.outcome.Notes = append(r.outcome.Notes, r.notKnown()...)
	return nil
}

// places are where objects of the payload are looked for, and of the kinds that releases
// before it had.
func (r *rollout) places() []inventory.Place {
	var all []inventory.Place
	for _, manifest := range r.payload.Manifests {
		id := manifest.ID()
		all = append(all, inventory.Place{Kind: id.GroupKind(), Namespace: id.Namespace})
	}
	for _, kind := range r.record.Kinds {
		all = append(all, inventory.Place{Kind: schema.GroupKind{Group: kind.Group, Kind: kind.Kind}})
	}
	return all
}

// matters says which objects of releases we need to know: ours, those of others that the payload
// has too, and definitions, since objects of ours may be of what others define.
func (r *rollout) matters() func(release string, id kinds.ID) bool {
	named := map[kinds.ID]bool{}
	anywhere := func(id kinds.ID) kinds.ID {
		id.Namespace = "" // which a manifest of something cluster-wide may have
		return id
	}
	for _, manifest := range r.payload.Manifests {
		named[anywhere(manifest.ID())] = true
	}
	return func(release string, id kinds.ID) bool {
		return release == r.payload.Name || id.GroupKind() == kinds.CustomResourceDefinition || named[anywhere(id)]
	}
}

// notKnown says of which kinds not all objects are known: of those forbidden in one line.
func (r *rollout) notKnown() []string {
	var notes []string
	var forbidden []string
	for _, kind := range r.before.AllUnlisted() {
		if why := r.before.Unlisted(kind); !apierrors.IsForbidden(why) {
			notes = append(notes, fmt.Sprintf("objects of kind %s can't be listed, so none of them is known to be an orphan: %s", kind, printable.Line(why.Error())))
		} else {
			forbidden = append(forbidden, kind.String())
		}
	}
	if len(forbidden) > 0 {
		notes = append(notes, "this user may not list these kinds in the whole cluster, so orphans are only known in namespaces of the release where that is allowed, and what can't be listed is applied one by one: "+strings.Join(forbidden, ", "))
	}
	return notes
}

// mode is what there is to do: an install until one was completed, a reconcile of what was
// completed last, and else an update. An update that was killed goes on as one, also if what it
// has updated is not known any more, and so does one whose deletes were not all asked for. Where
// the record is lost, objects tell that there was one.
func (r *rollout) mode() graph.Mode {
	newest := r.record.Newest()
	switch {
	case r.options.Apply.Mode != "":
		return r.options.Apply.Mode
	case newest == nil && len(r.before.Of(r.payload.Name)) > 0:
		return graph.Update
	case r.record.Applied() == nil && !r.record.HasUpdated():
		return graph.Install
	case newest.State == record.Completed && newest.Hash == r.payload.Hash && newest.Version == r.payload.Version && !r.isUnasked():
		return graph.Reconcile
	default:
		return graph.Update
	}
}

// begin notes what is about to be done: from now on the cluster knows it, whatever becomes
// of us. What is to be deleted is noted with it, so that this is one write.
func (r *rollout) begin(ctx context.Context) error {
	now := metav1.NewTime(r.cluster.Now().Truncate(time.Second))
	entry := record.Entry{
		Version: r.payload.Version, Hash: r.payload.Hash, Content: r.payload.Content, Source: r.options.Source, Mode: string(r.outcome.Mode), Started: now, Forced: r.outcome.Forced,
	}
	var has []record.Kind
	for _, manifest := range r.payload.Manifests {
		id := manifest.ID()
		if manifest.IsTombstone() {
			entry.Tombstones = append(entry.Tombstones, id)
		} else {
			has = append(has, record.Kind{Group: id.Group, Kind: id.Kind})
		}
	}
	r.announceGone(ctx)
	var asked []record.Tombstone
	if r.outcome.Mode == graph.Update {
		asked = r.toBury(ctx, entry.Tombstones, now)
	}
	return r.journal.Note(ctx, func(known *record.Record) {
		r.forgetGone(known)
		known.Run = nil // that of the one before
		if r.outcome.Mode != graph.Reconcile {
			known.Begin(entry)
		}
		known.AddKinds(has...)
		for _, one := range asked {
			known.Ask(one)
		}
	})
}

// end notes what came of it.
func (r *rollout) end(ctx context.Context) error {
	var pending []record.Tombstone
	r.journal.Read(func(known *record.Record) { pending = precondition.Pending(known, r.before) })
	r.outcome.Deletes = precondition.Observe(ctx, r.cluster, pending)
	r.outcome.Orphans = r.orphans(ctx)
	r.announceGone(ctx)
	before := r.store.Loss()
	defer func() {
		r.outcome.Deletes = slices.DeleteFunc(r.outcome.Deletes, r.isNotPending)
		if loss := r.store.Loss(); loss != before {
			r.outcome.Notes = append(r.outcome.Notes, loss)
		}
	}()
	return r.journal.Note(ctx, func(known *record.Record) {
		r.forgetGone(known)
		known.Run = r.outcome.Report.Left
		if known.Run == nil || known.Run.Ended {
			known.Waits = nil
		}
		if found := r.outcome.Report.Fingerprints; found != nil { // else nothing was begun
			known.Fingerprints = found.Update(known.Fingerprints)
		}
		newest := known.Newest() // which may be somebody else's, if they have taken the lock just now
		isOurs := newest != nil && newest.Hash == r.payload.Hash && newest.Version == r.payload.Version
		if isOurs && (r.outcome.Report.Err != nil || r.options.Apply.NoWait) {
			known.Stop(r.stopped())
		}
		if !isOurs || r.outcome.Report.Err != nil || r.options.Apply.NoWait {
			return
		}
		if r.outcome.Mode != graph.Reconcile {
			known.Complete(metav1.NewTime(r.cluster.Now().Truncate(time.Second)))
		}
		if r.hasWritten() && !r.isLate { // else the record would be written for this alone
			known.Remember(string(r.outcome.Mode), time.Since(r.began), r.outcome.Report.Took)
		}
	})
}

// hasWritten says whether the run has changed anything on the cluster.
func (r *rollout) hasWritten() bool {
	return r.outcome.Mode != graph.Reconcile || slices.ContainsFunc(r.outcome.Report.Changes, func(change object.Change) bool {
		return change.Action == object.Created || change.Action == object.Configured || change.Action == object.Recreated
	})
}
