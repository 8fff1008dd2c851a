package session

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// An entryKey identifies an entry of the history.
type entryKey struct {
	revision      int
	version, hash string
}

// keyOf returns the key of an entry; an empty one if there is none.
func keyOf(entry *record.HistoryEntry) entryKey {
	if entry == nil {
		return entryKey{}
	}
	return entryKey{entry.Revision, entry.Version, entry.Hash}
}

// kindsOf returns the kinds of the objects of a release, and its tombstones.
func kindsOf(manifests []*payload.Manifest) (has []record.AppliedKind, tombstones []kinds.ID) {
	for _, manifest := range manifests {
		id := manifest.ID()
		if manifest.IsTombstone() {
			tombstones = append(tombstones, id)
		} else {
			has = append(has, record.AppliedKind{Group: id.Group, Kind: id.Kind})
		}
	}
	return has, tombstones
}

// begin records the kinds that the apply writes and the objects that it deletes, in one write, for the next process if
// this one dies. The files of the release are kept before, and the copies that are no longer needed removed after it.
func (r *run) begin(ctx context.Context) error {
	now := metav1.NewTime(r.cluster.Now().Truncate(time.Second))
	entry := record.HistoryEntry{
		Version: r.payload.Version, Hash: r.payload.Hash, Content: r.payload.Content, Source: r.options.Source,
		Mode: string(r.outcome.Mode), Started: now,
		Forced: slices.Concat(r.options.Forced, r.outcome.Forced), Verified: r.options.Verified,
	}
	if r.options.Rollback != nil {
		entry.Rollback = new(*r.options.Rollback)
		entry.Rollback.By = r.options.Apply.Lock.Holder()
	}
	if enabled := r.payload.Filter.Capabilities; enabled != nil {
		entry.Capabilities = enabled.EnabledCapabilities
	}
	has, tombstones := kindsOf(r.payload.Manifests)
	entry.Tombstones = tombstones
	r.recordDeleted(ctx)
	var requested []record.Tombstone
	if r.outcome.Mode == graph.Update && r.options.LeftOut == nil {
		requested = r.deletesToRecord(ctx, entry.Tombstones, now)
	}
	copies, kept := r.storeFiles(ctx)
	entry.Files, entry.Revision = kept, copies.nextRevision()
	err := r.journal.Note(ctx, func(known *record.Record) {
		r.forgetFinished(known)
		known.Run, known.Uninstall = nil, nil // they describe the previous apply
		known.NoteOwn(r.options.Own)
		if r.options.Keep != nil {
			known.KeptBy = r.options.Apply.Lock.Holder()
		}
		if r.outcome.Mode != graph.Reconcile {
			known.Begin(entry)
			r.known = append(r.known, keyOf(known.Newest())) // the write may arrive although its response does not
		} else if newest := known.Newest(); newest != nil {
			newest.Capabilities = entry.Capabilities // more may be enabled, for the same objects
			newest.Files = newest.Files.Or(entry.Files)
			// A restarted operator looks for the same content there, and can't use a folder of the command line.
			if r.options.Own != "" && entry.Source != newest.Source {
				newest.Source, newest.Verified, newest.Forced = entry.Source, entry.Verified, entry.Forced
			}
		}
		known.AddOverrides(hookOverrides(r.options.Apply.Hooks, now)...)
		known.AddKinds(has...)
		for _, tombstone := range requested {
			known.RequestDelete(tombstone)
		}
		copies.markNeeded(known, r.options.Files.most())
	})
	if err == nil {
		r.outcome.FileWarnings = copies.collect(ctx)
	}
	return err
}

// storeFiles stores the files of the release on the cluster, and returns all copies, with the entry for the record.
func (r *run) storeFiles(ctx context.Context) (*fileCopies, *record.KeptFiles) {
	store := files.Store{Cluster: r.cluster, Namespace: r.options.Namespace, Release: r.payload.Name}
	copies := listCopies(ctx, store, r.options.Files, r.record)
	isContinued := r.outcome.IsSame &&
		(r.outcome.Mode == graph.Reconcile || r.record.Newest().State == record.Partial)
	return copies, copies.storeFiles(ctx, r.options.Files, r.payload.Version, r.record, isContinued)
}

// createNamespace creates the namespace of objects whose manifests name none, if the options ask for it. It is not part
// of the release: an uninstall keeps it.
func (r *run) createNamespace(ctx context.Context) error {
	name := precondition.ForeignNamespace(r.payload)
	if !r.options.CreateNamespace || name == "" {
		return nil
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := r.cluster.Client.CoreV1().Namespaces().Create(ctx, namespace,
		metav1.CreateOptions{FieldManager: cluster.FieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", name, printable.Error(err))
	}
	return nil
}

// hookOverrides returns the lifecycle hooks that a user skips in this apply, or runs again.
func hookOverrides(overrides map[kinds.ID]deploymenthook.Override, now metav1.Time) []record.HookOverride {
	var all []record.HookOverride
	for _, id := range slices.SortedFunc(maps.Keys(overrides), kinds.Compare) {
		wanted := overrides[id]
		for _, stage := range wanted.Skip {
			all = append(all, record.HookOverride{ID: id, Hook: stage, By: wanted.By, Time: now})
		}
		for _, stage := range wanted.Rerun {
			all = append(all, record.HookOverride{ID: id, Hook: stage, IsRerun: true, By: wanted.By, Time: now})
		}
	}
	return all
}

// end records the result of the apply.
func (r *run) end(ctx context.Context) error {
	var pending []record.Tombstone
	r.journal.Read(func(known *record.Record) { pending = precondition.Pending(known, r.before) })
	r.outcome.Deletes = precondition.ObserveDeletes(ctx, r.cluster, pending)
	r.outcome.Orphans = r.orphans(ctx)
	r.recordDeleted(ctx)
	before := r.store.Loss()
	defer func() {
		r.outcome.Deletes = slices.DeleteFunc(r.outcome.Deletes, r.isNotPending)
		if loss := r.store.Loss(); loss != before {
			r.outcome.Notes = append(r.outcome.Notes, loss)
		}
	}()
	return r.journal.Note(ctx, func(known *record.Record) {
		r.forgetFinished(known)
		known.Run = r.outcome.Report.Left
		if known.Run == nil || known.Run.Ended {
			known.Waits = nil
		}
		if found := r.outcome.Report.Fingerprints; found != nil { // nil if the apply has not begun
			known.Fingerprints = found.Update(known.Fingerprints)
		}
		newest := known.Newest() // it may be of another process that has just taken the lock
		isOurs := newest != nil && newest.Hash == r.payload.Hash && newest.Version == r.payload.Version
		isWhole := r.outcome.Report.Err == nil && !r.options.Apply.NoWait && r.options.LeftOut == nil
		if isOurs && !isWhole {
			known.Stop(r.lastEnd())
		}
		if !isOurs || !isWhole {
			return
		}
		if r.outcome.Mode != graph.Reconcile {
			known.Complete(metav1.NewTime(r.cluster.Now().Truncate(time.Second)))
		}
		if r.hasWritten() && !r.isLate { // otherwise the record would be written for the durations alone
			known.Remember(string(r.outcome.Mode), time.Since(r.began), r.outcome.Report.Took)
		}
	})
}

// hasWritten reports whether the apply has changed anything on the cluster.
func (r *run) hasWritten() bool {
	return r.outcome.Mode != graph.Reconcile ||
		slices.ContainsFunc(r.outcome.Report.Changes, func(change object.Change) bool {
			return change.Action == object.Created || change.Action == object.Configured ||
				change.Action == object.Recreated
		})
}

// Limits of the history of a failed apply: a hundred entries have to fit into a record.
const (
	maxFailures = 5
	maxMessage  = 300
)

// lastEnd returns how the apply ended, for the history: the error, and the first objects that failed or were not ready.
func (r *run) lastEnd() record.End {
	report := r.outcome.Report
	end := record.End{
		Time:    metav1.NewTime(r.cluster.Now().Truncate(time.Second)),
		Message: "it was applied without waiting until it is ready",
	}
	if err := cmp.Or(report.Err, r.options.LeftOut); err != nil {
		end.Reason, end.Message = reason.Of(err), err.Error()
	}
	if report.Left != nil {
		end.Message = report.Left.Error
	}
	end.Message = shortened(strings.TrimSuffix(end.Message, ":"))
	for _, change := range report.Changes {
		if change.Action == object.Failed {
			failed := record.ObjectFailure{
				ID:      change.Err.ID,
				Hook:    change.Err.Hook,
				File:    change.Err.Path,
				Reason:  change.Err.Reason,
				Message: shortened(change.Err.Err.Error()),
			}
			end.Failures = append(end.Failures, failed)
		}
	}
	for _, wait := range report.Waits {
		what := "not ready: "
		switch {
		case wait.Hook != "":
			what = "not done: "
		case wait.IsRetry:
			what = "not applied: "
		}
		end.Failures = append(end.Failures, record.ObjectFailure{
			ID:      wait.ID,
			Hook:    wait.Hook,
			File:    wait.File,
			Reason:  wait.Reason,
			Message: what + shortened(wait.For),
		})
	}
	if end.More = len(end.Failures) - maxFailures; end.More > 0 {
		end.Failures = end.Failures[:maxFailures]
	}
	end.More = max(end.More, 0)
	return end
}

// shortened returns the first line of a text, truncated for the history.
func shortened(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return printable.Truncate(printable.Line(text), maxMessage)
}
