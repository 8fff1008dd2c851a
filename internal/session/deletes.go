package session

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// deletesToRecord returns the tombstoned objects that exist, with their UIDs, so that the record has them before the
// first DELETE. Objects of other releases are left out, and so are kinds that could not be listed: their deletes are
// recorded one by one.
func (r *run) deletesToRecord(ctx context.Context, tombstones []kinds.ID, now metav1.Time) []record.Tombstone {
	var requested []record.Tombstone
	for _, id := range tombstones {
		_, isOthers := r.before.OwnerOf(id, r.payload.Name)
		if isOthers || !r.before.Covers(id) {
			continue
		}
		item := record.Tombstone{ID: id, Version: r.payload.Version, RequestedAt: now}
		if i := slices.IndexFunc(r.record.Tombstones, func(known record.Tombstone) bool {
			return known.ID == id
		}); i >= 0 {
			item.UID = r.record.Tombstones[i].UID
		}
		requested = append(requested, item)
	}
	var existing []record.Tombstone
	for _, item := range precondition.ObserveDeletes(ctx, r.cluster, requested) {
		if item.Seen.State != tombstone.Absent {
			item.IsBack = item.Seen.State == tombstone.Reappeared || r.journal.HasDeleted(item.ID)
			item.UID = item.Seen.UID
			existing = append(existing, item.Tombstone)
		}
	}
	return existing
}

// hasUnsentDeletes reports whether the record has a delete of the payload that was never sent by its update.
func (r *run) hasUnsentDeletes() bool {
	return slices.ContainsFunc(r.outcome.Deletes, func(item precondition.Delete) bool {
		return item.Seen.State == tombstone.Present && r.hasManifest(item.ID, true)
	})
}

// isFinished reports whether a delete is finished: the object does not exist, or it exists, is not terminating, and the
// payload has it again.
func (r *run) isFinished(item precondition.Delete) bool {
	switch item.Seen.State {
	case tombstone.Absent:
		return true
	case tombstone.Reappeared, tombstone.Present:
		return r.hasManifest(item.ID, false)
	default:
		return false
	}
}

// isNotPending reports whether a delete is not to be reported as pending: it is finished, or this apply was to send it
// and has not reached it.
func (r *run) isNotPending(item precondition.Delete) bool {
	return r.isFinished(item) || !item.WasSent() && r.hasManifest(item.ID, true)
}

// hasManifest reports whether the payload has an object, or its tombstone.
func (r *run) hasManifest(id kinds.ID, isTombstone bool) bool {
	return slices.ContainsFunc(r.payload.Manifests, func(m *payload.Manifest) bool {
		return m.IsTombstone() == isTombstone && m.ID() == id
	})
}

// recordDeleted writes a Kubernetes event for each object that no longer exists, whichever version has deleted it.
func (r *run) recordDeleted(ctx context.Context) {
	for _, item := range r.outcome.Deletes {
		if !r.isFinished(item) || item.UID == "" || item.Seen.State == tombstone.Present {
			continue // it was never observed, or never deleted
		}
		if err := cluster.RecordEvent(ctx, r.cluster,
			tombstone.Event(item.ID, item.UID, tombstone.ReasonDeleted, "the object is deleted")); err != nil {
			klog.FromContext(ctx).V(1).Info("an event could not be written", "object", item.ID.String(), "err", err)
		}
	}
}

// forgetFinished removes finished deletes from the record.
func (r *run) forgetFinished(known *record.Record) {
	for _, item := range r.outcome.Deletes {
		if r.isFinished(item) {
			known.ForgetDelete(item.ID, item.UID)
		}
	}
}
