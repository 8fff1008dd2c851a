package rollout

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/precondition"
	"github.com/runlevel/runlevel/pkg/record"
	"github.com/runlevel/runlevel/pkg/tombstone"
)

// looksAtOnce bounds how many objects are looked at at a time.
const looksAtOnce = 16

// Observe looks at deletes that were asked for.
func Observe(ctx context.Context, c *cluster.Cluster, asked []record.Tombstone) []precondition.Delete {
	deletes := make([]precondition.Delete, len(asked))
	var group errgroup.Group
	group.SetLimit(looksAtOnce)
	for i, one := range asked {
		group.Go(func() error {
			deletes[i] = precondition.Delete{Tombstone: one, Seen: tombstone.Observe(ctx, c, tombstone.Object{Kind: one.GroupKind(), Namespace: one.Namespace, Name: one.Name}, one.UID)}
			return nil
		})
	}
	_ = group.Wait() // none of them fails: what can't be asked is unknown
	return deletes
}

// toBury are the objects of tombstones that are there, with their UIDs: the record has
// them before the first of them is deleted.
func (r *rollout) toBury(ctx context.Context, tombstones []kinds.ID, now metav1.Time) []record.Tombstone {
	var asked []record.Tombstone
	for _, id := range tombstones {
		asked = append(asked, record.Tombstone{Object: id, Version: r.payload.Version, Asked: now})
	}
	var there []record.Tombstone
	for _, one := range Observe(ctx, r.cluster, asked) {
		if one.Seen.State != tombstone.Absent {
			one.UID, one.IsBack = one.Seen.UID, r.wasDeleted(one.Object)
			there = append(there, one.Tombstone)
		}
	}
	return there
}

// wasDeleted says whether the version before has deleted an object, and has seen it go.
func (r *rollout) wasDeleted(id kinds.ID) bool {
	applied := r.record.Applied()
	isPending := slices.ContainsFunc(r.record.Tombstones, func(one record.Tombstone) bool { return one.Object == id })
	return applied != nil && slices.Contains(applied.Tombstones, id) && !isPending
}

// announceGone tells of deletes that are done by now, whatever version asked for them.
func (r *rollout) announceGone(ctx context.Context) {
	for _, one := range r.outcome.Deletes {
		if one.Seen.State != tombstone.Absent {
			continue
		}
		news := tombstone.News{ID: one.Object, UID: one.UID, What: tombstone.Gone, Message: "it is gone"}
		if err := news.Announce(ctx, r.cluster); err != nil {
			klog.FromContext(ctx).V(1).Info("an event could not be written", "object", one.Object.String(), "err", err)
		}
	}
}

// forgetGone takes out of the record what was seen to be gone.
func forgetGone(known *record.Record, deletes []precondition.Delete) {
	for _, one := range deletes {
		if one.Seen.State == tombstone.Absent {
			known.Forget(one.Object, one.UID)
		}
	}
}
