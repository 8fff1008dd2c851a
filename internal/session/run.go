// Package session applies payloads to a cluster, under the lock of their release: it inspects the cluster, asks the
// gate, applies the payload, keeps it in place, and records the result. The command line and the operator both call it.
// Each part is a package of its own; the result is an Outcome, from which everything else is reported.
//
// Hold returns a Session, which holds the lock of a release and applies its payloads (session.go). Run does so for a
// single payload. Preview returns the changes that Run would make, and Inspect only the state of the cluster; neither
// changes anything. Start with Hold.
package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// A run is the apply of one payload.
type run struct {
	cluster *cluster.Cluster
	payload *payload.Payload
	options Options
	store   *record.Store
	journal *object.Journal
	record  *record.Record
	before  *inventory.Inventory // the objects of the cluster before the apply
	outcome *Outcome
	began   time.Time
	isLate  bool               // not everything was ready in time
	onKeep  func(*keep.Keeper) // called with the keeper of the payload
	known   []entryKey         // see Session

	notifier *runNotifier
}

// Inspect returns what Run would find on the cluster, and the findings of the gate. It changes nothing.
func Inspect(ctx context.Context, c *cluster.Cluster, release *payload.Payload, options Options) *Outcome {
	r := newRun(c, release, options)
	r.outcome.Err = r.inspect(ctx, r.lock())
	return r.outcome
}

// Preview returns the changes that Run would make, and makes none. It continues if the gate refuses the apply.
func Preview(ctx context.Context, c *cluster.Cluster, release *payload.Payload, options Options) *Outcome {
	r := newRun(c, release, options)
	return r.preview(ctx, r.lock())
}

// preview is Preview, with the lock if this process does not hold it.
func (r *run) preview(ctx context.Context, free *lock.Lock) *Outcome {
	began := time.Now()
	defer func() { r.outcome.Took = time.Since(began) }()
	if r.outcome.Err = r.inspect(ctx, free); r.outcome.Err != nil {
		return r.outcome
	}
	refused := errors.Join(r.askGate(), r.options.Observer.OnBegin(r.outcome))
	r.outcome.Report = apply.Preview(ctx, r.cluster, r.payload, r.before, r.applyOptions())
	r.outcome.Orphans = r.orphans(ctx)
	r.outcome.Deletes = slices.DeleteFunc(r.outcome.Deletes, r.isNotPending)
	r.outcome.Err = errors.Join(refused, r.outcome.Report.Err)
	return r.outcome
}

func newRun(c *cluster.Cluster, release *payload.Payload, options Options) *run {
	options.Namespace = cmp.Or(options.Namespace, DefaultNamespace)
	if options.Observer == nil {
		options.Observer = NoObserver{}
	}
	r := &run{
		payload: withVersionAnnotations(release),
		options: options,
		outcome: &Outcome{Release: release.Name, Version: release.Version},
	}
	r.connect(c)
	return r
}

// lock returns the lock of the release.
func (r *run) lock() *lock.Lock {
	return &lock.Lock{
		Client:    r.cluster.Client,
		Namespace: r.options.Namespace,
		Release:   r.payload.Name,
		Now:       r.cluster.Now,
	}
}

// connect makes the run use a connection, for the record, too.
func (r *run) connect(c *cluster.Cluster) {
	r.cluster = c
	r.store = record.NewStore(c.Client, r.options.Namespace, r.payload.Name)
}

// applyUnder applies the payload under a lock, which is checked before each write.
func (r *run) applyUnder(ctx context.Context, hold *lock.Hold) error {
	r.began = time.Now() // excludes the wait for the lock
	fenced, err := r.cluster.Fenced(hold.Check)
	if err != nil {
		return err
	}
	r.connect(fenced)
	r.options.Apply.Lock = hold
	err = r.run(ctx)
	if r.outcome.Took == 0 { // otherwise the outcome was already reported
		r.outcome.Took = time.Since(r.began)
	}
	return err
}

// run inspects the cluster, asks the gate, and applies the payload.
func (r *run) run(ctx context.Context) error {
	if err := r.inspect(ctx, nil); err != nil {
		return err
	}
	newest := keyOf(r.record.Newest())
	if r.options.onlySame && !r.outcome.IsSame && !slices.Contains(r.known, newest) {
		return fmt.Errorf("release %s is no longer kept in place: %w", r.outcome.Release, ErrYielded)
	}
	if err := r.options.Apply.Lock.Check(ctx); err != nil { // another process may have changed the record
		return err
	}
	r.known = []entryKey{newest}
	if err := errors.Join(checkRollback(r.record, r.options.Rollback), r.askGate()); err != nil {
		return err
	}
	if err := r.options.Observer.OnBegin(r.outcome); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	r.journal.Read(func(known *record.Record) { r.known = []entryKey{keyOf(known.Newest())} })
	r.notifier.begin(ctx)
	if err := r.createNamespace(ctx); err != nil {
		return err
	}
	if err := r.options.Observer.OnRecorded(ctx, r.cluster); err != nil {
		return err
	}
	if r.options.Keep != nil {
		return r.applyAndKeep(ctx)
	}
	return r.finish(ctx, apply.Run(ctx, r.cluster, r.payload, r.before, r.applyOptions()))
}

// askGate returns the refusal of the gate, or notes the checks that are overridden. None blocks the release that was
// begun last from being kept in place: one object that can't be applied is to cost no other one, and each is checked
// again when it is applied. A release is not kept in place during its uninstall.
func (r *run) askGate() error {
	blocking := precondition.Blocking(r.outcome.Findings)
	if r.options.Keep != nil && r.outcome.IsSame && !r.options.Force { // force records the overridden checks
		blocking = slices.DeleteFunc(blocking, func(f precondition.Finding) bool {
			return f.Check != precondition.BeingUninstalled
		})
	}
	if len(blocking) > 0 && !r.options.Force {
		return precondition.Refuse(blocking)
	}
	r.outcome.Forced = precondition.CheckNames(blocking)
	return nil
}

// finish notes the report of an apply in the record, if the lock is still held.
func (r *run) finish(ctx context.Context, report *apply.Report) error {
	r.outcome.Report = report
	held, stop := r.options.Apply.Lock.Requests(ctx)
	defer stop()
	// the context of a lost lock ends a moment later
	if held.Err() == nil && !errors.Is(r.outcome.Report.Err, lock.ErrLost) {
		return errors.Join(r.outcome.Report.Err, r.end(held))
	}
	if r.outcome.Report.Err == nil { // all steps are done, but another process owns the record
		return context.Cause(held)
	}
	return r.outcome.Report.Err
}

// applyAndKeep applies the payload, and keeps each object in place as soon as the apply is done with it. The outcome
// is reported when everything is ready, and before that, once, when it is not ready in time.
func (r *run) applyAndKeep(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	options, keeping := r.applyOptions(), *r.options.Keep
	defer r.startRepairLog(ctx, &keeping).end(ctx)
	defer stop()
	options.Fingerprints = fingerprint.Read(nil)
	keeping.Apply, keeping.WasComplete = options.Options, r.outcome.IsSame && r.outcome.Mode == graph.Reconcile
	kept := &keptRun{Keeper: keep.Start(ctx, r.cluster, r.payload, keeping), run: r, ctx: ctx}
	r.onKeep(kept.Keeper)
	options.Keeper = kept
	if err := r.finish(ctx, apply.Run(ctx, r.cluster, r.payload, r.before, options)); err != nil {
		stop()
		_ = kept.Wait()
		return err
	}
	r.reportOutcome(ctx, r.options.LeftOut)
	if !r.isLate {
		kept.Announce()
	}
	return kept.Wait()
}

// A keptRun is the Keeper of a run: it takes over the objects that are applied.
type keptRun struct {
	*keep.Keeper
	run *run
	ctx context.Context
}

// NotReady reports the outcome when not all objects are ready in time.
func (k *keptRun) NotReady(report *apply.Report) {
	k.run.reportOutcome(k.ctx, k.run.finish(k.ctx, report))
	k.Announce()
	k.run.isLate = true
}

// reportOutcome reports the outcome until now to the receivers of notifications, and to the Observer.
func (r *run) reportOutcome(ctx context.Context, err error) {
	r.outcome.Err, r.outcome.Took = err, time.Since(r.began)
	r.notifier.report(ctx, r.notifier.ended())
	r.options.Observer.OnOutcome(r.outcome)
}

// applyOptions returns the options of the apply, with the mode that was found.
func (r *run) applyOptions() apply.Options {
	options := r.options.Apply
	options.Release, options.Version, options.Mode, options.Journal = r.payload.Name, r.payload.Version, r.outcome.Mode,
		r.journal
	options.LeavesDeletes = r.options.LeftOut != nil
	return options
}

// inspect reads the record and the objects of the release, and asks the gate. Free is the lock, if this process does
// not hold it: the gate then looks for its holder.
func (r *run) inspect(ctx context.Context, free *lock.Lock) error {
	known, _, err := r.store.Load(ctx)
	isDenied := reason.Of(err) == record.ReasonDenied
	if free != nil && isDenied {
		r.outcome.Notes = append(r.outcome.Notes,
			"cannot read the release record (forbidden): mode and orphans are estimated")
		known, err = &record.Record{Release: r.payload.Name}, nil // the gate names the missing right
	}
	if err != nil {
		return err
	}
	r.record, r.journal, r.outcome.record = known, object.NewJournal(r.store, known), r.store.UID()
	if r.before, err = inventory.Take(ctx, r.cluster, r.listScopes(), r.isRelevant()); err != nil {
		return err
	}
	isRecovered := recoverHistory(known, r.before)
	if isRecovered && !isDenied {
		r.outcome.Notes = append(r.outcome.Notes,
			fmt.Sprintf("most of the history: the record of the release and its copy are lost; %s is the version in "+
				"annotation %s of its objects",
				known.Newest().Version, objectmeta.VersionAnnotation))
	}
	if applied := known.Applied(); applied != nil {
		r.outcome.Previous = applied.Version
	}
	facts, err := precondition.Gather(ctx, r.cluster, precondition.Input{
		Payload: r.payload, Before: r.before, Record: known, Namespace: r.options.Namespace,
		IsShareable: r.options.Namespace != DefaultNamespace, CreateNamespace: r.options.CreateNamespace,
		Standard: r.options.Apply.Standard, Lock: free, IsRecovered: isRecovered, Rollback: r.options.Rollback,
	})
	if err != nil {
		return err
	}
	r.outcome.Findings, r.outcome.Deletes = precondition.Evaluate(facts), facts.Deletes
	newest := known.Newest()
	r.outcome.IsSame = newest != nil && newest.Hash == r.payload.Hash && newest.Version == r.payload.Version
	r.outcome.WasLeftOut = newest.HasLeftOut()
	r.outcome.Mode = r.findMode()
	r.outcome.Durations = known.Durations[string(r.outcome.Mode)]
	if loss := r.store.Loss(); loss != "" {
		r.outcome.Notes = append(r.outcome.Notes, loss)
	}
	if newest != nil {
		r.outcome.Begun = newest.Version
	}
	r.outcome.Notes = append(r.outcome.Notes, r.unlistedNotes()...)
	return nil
}

// listScopes returns where to list objects: the kinds of the payload, and those of the releases before it.
func (r *run) listScopes() []inventory.Scope {
	var all []inventory.Scope
	for _, manifest := range r.payload.Manifests {
		id := manifest.ID()
		all = append(all, inventory.Scope{Kind: id.GroupKind(), Namespace: id.Namespace})
	}
	return append(all, inventory.Everywhere(r.record.GroupKinds())...)
}

// isRelevant returns a filter of the objects that the inventory keeps: those of this release, those of other
// releases that the payload has, too, and definitions, since other releases may define kinds of the payload.
func (r *run) isRelevant() func(release string, id kinds.ID) bool {
	named := map[kinds.ID]bool{}
	anywhere := func(id kinds.ID) kinds.ID {
		id.Namespace = "" // a manifest of a cluster-scoped object may have one
		return id
	}
	for _, manifest := range r.payload.Manifests {
		named[anywhere(manifest.ID())] = true
	}
	return func(release string, id kinds.ID) bool {
		return release == r.payload.Name || id.GroupKind() == kinds.CustomResourceDefinition || named[anywhere(id)]
	}
}

// unlistedNotes names the kinds that could not be listed: those that are forbidden in one line.
func (r *run) unlistedNotes() []string {
	var notes []string
	var forbidden []string
	for _, kind := range r.before.UnlistedKinds() {
		if err := r.before.ListError(kind); !apierrors.IsForbidden(err) {
			notes = append(notes, fmt.Sprintf("objects of kind %s can't be listed, so its orphans are unknown: %s",
				kind,
				printable.Line(err.Error())))
		} else {
			forbidden = append(forbidden, kind.String())
		}
	}
	if len(forbidden) > 0 {
		notes = append(notes,
			"this user may not list these kinds in the whole cluster, so orphans are known only in the "+
				"release's namespaces where this user may list them, and objects elsewhere are read one by one: "+
				strings.Join(forbidden, ", "))
	}
	return notes
}

// findMode returns the mode that follows from the record: install until an install was completed (a release after one
// with left out manifests is an update), reconcile for the payload that was completed last, otherwise update. An update
// that was killed, or whose deletes were not all sent, continues as an update. If the record is lost, the objects of
// the release show that there was one. After an uninstall has begun, the objects that it has deleted are applied in
// order.
func (r *run) findMode() graph.Mode {
	newest := r.record.Newest()
	switch {
	case r.options.Apply.Mode != "":
		return r.options.Apply.Mode
	case newest == nil && len(unrecorded(r.before, r.payload.Name)) > 0, r.record.Uninstall != nil:
		return graph.Update
	case r.record.Applied() == nil && !r.record.HasUpdated() && (r.outcome.IsSame || !r.outcome.WasLeftOut):
		return graph.Install
	case newest.State == record.Completed && r.outcome.IsSame && !r.hasUnsentDeletes():
		return graph.Reconcile
	default:
		return graph.Update
	}
}
