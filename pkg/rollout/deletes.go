package rollout

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
	"github.com/runlevel/runlevel/pkg/record"
	"github.com/runlevel/runlevel/pkg/tombstone"
)

// toBury are the objects of tombstones that are there, with their UIDs: the record has
// them before the first of them is deleted. Those of other releases are not asked for, and
// where that is not known yet, it is left to who deletes them.
func (r *rollout) toBury(ctx context.Context, tombstones []kinds.ID, now metav1.Time) []record.Tombstone {
	var asked []record.Tombstone
	for _, id := range tombstones {
		_, isOthers := r.before.Owner(id, r.payload.Name)
		if isOthers || !r.before.Covers(id) {
			continue
		}
		one := record.Tombstone{ID: id, Version: r.payload.Version, Asked: now}
		if at := slices.IndexFunc(r.record.Tombstones, func(known record.Tombstone) bool { return known.ID == id }); at >= 0 {
			one.UID = r.record.Tombstones[at].UID
		}
		asked = append(asked, one)
	}
	var there []record.Tombstone
	for _, one := range precondition.Observe(ctx, r.cluster, asked) {
		if one.Seen.State != tombstone.Absent {
			one.IsBack = one.Seen.State == tombstone.Reappeared || r.journal.HasDeleted(one.ID)
			one.UID = one.Seen.UID
			there = append(there, one.Tombstone)
		}
	}
	return there
}

// isUnasked says whether a delete of the payload has not reached its object, although an
// update asked for it: the update is not over then.
func (r *rollout) isUnasked() bool {
	return slices.ContainsFunc(r.outcome.Deletes, func(one precondition.Delete) bool {
		return one.Seen.State == tombstone.Present && r.carries(one.ID, true)
	})
}

// isOver says whether there is nothing left of a delete: the object is gone, or the payload
// has it again and nothing is about to end the one that is there.
func (r *rollout) isOver(one precondition.Delete) bool {
	switch one.Seen.State {
	case tombstone.Absent:
		return true
	case tombstone.Reappeared, tombstone.Present:
		return r.carries(one.ID, false)
	default:
		return false
	}
}

// isNotPending says whether a delete is not to be told of as pending: it is over, or the payload
// has it and did not come to it, so that it is not done like all that comes after a failure.
func (r *rollout) isNotPending(one precondition.Delete) bool {
	return r.isOver(one) || !one.WasSent() && r.carries(one.ID, true)
}

// carries says whether the payload has an object, or the tombstone of it.
func (r *rollout) carries(id kinds.ID, isTombstone bool) bool {
	return slices.ContainsFunc(r.payload.Manifests, func(m *payload.Manifest) bool {
		return m.IsTombstone() == isTombstone && m.ID() == id
	})
}

// announceGone tells of deletes that are done by now, whatever version asked for them.
func (r *rollout) announceGone(ctx context.Context) {
	for _, one := range r.outcome.Deletes {
		if !r.isOver(one) || one.UID == "" || one.Seen.State == tombstone.Present {
			continue // nobody ever saw it, or it has never gone
		}
		news := tombstone.News{ID: one.ID, UID: one.UID, What: tombstone.Gone, Message: "it is gone"}
		if err := news.Announce(ctx, r.cluster); err != nil {
			klog.FromContext(ctx).V(1).Info("an event could not be written", "object", one.ID.String(), "err", err)
		}
	}
}

// forgetGone takes out of the record what was seen to be gone, or is to stay.
func (r *rollout) forgetGone(known *record.Record) {
	for _, one := range r.outcome.Deletes {
		if r.isOver(one) {
			known.Forget(one.ID, one.UID)
		}
	}
}
