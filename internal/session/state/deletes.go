package state

import (
	"context"
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/cluster/waiter"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// A PendingDelete is a requested delete whose object still exists.
type PendingDelete struct {
	Release     string                `json:"release,omitempty"`
	Object      kinds.ID              `json:"object"`
	UID         string                `json:"uid,omitempty"`
	Version     string                `json:"version,omitempty"` // version that requested the delete
	RequestedAt time.Time             `json:"requestedAt"`
	Sent        bool                  `json:"sent"` // the request was sent, as far as known
	State       tombstone.DeleteState `json:"state"`
	Message     string                `json:"message"` // the state as text
	Since       *time.Time            `json:"since,omitempty"`
	Finalizers  []string              `json:"finalizers,omitempty"`
	Remaining   []string              `json:"remaining,omitempty"`

	IsForeign bool `json:"-"` // another client has requested it
}

// PendingDeletes returns the deletes that are not done.
func PendingDeletes(deletes []precondition.Delete, now time.Time) []PendingDelete {
	var pending []PendingDelete
	for _, item := range deletes {
		if item.Seen.State == tombstone.Absent {
			continue
		}
		shown := PendingDelete{
			Object: item.ID, UID: string(item.UID), Version: item.Version, RequestedAt: item.RequestedAt.Time,
			Sent:  item.WasSent(),
			State: item.Seen.State, Message: item.Describe(now), Finalizers: item.Seen.Finalizers,
			Remaining: item.Seen.Remains,
		}
		if !item.Seen.Since.IsZero() {
			shown.Since = &item.Seen.Since
		}
		if shown.RequestedAt.IsZero() {
			shown.IsForeign, shown.RequestedAt = true, item.Seen.Since
		}
		pending = append(pending, shown)
	}
	return pending
}

// RequestedDeletes returns the deletes of releases that may not be done: those in their records, and their
// objects that are terminating.
func (r *Reader) RequestedDeletes(ctx context.Context, releases ...*record.Record) ([]record.Tombstone, error) {
	var requested []record.Tombstone
	for _, known := range releases {
		before, err := inventory.TakeRelease(ctx, r.Cluster, known.Release, known.GroupKinds())
		if err != nil {
			return nil, err
		}
		requested = append(requested, precondition.Pending(known, before)...)
	}
	return requested, nil
}

// PendingDeletes returns those of the requested deletes that are not done.
func (r *Reader) PendingDeletes(ctx context.Context, requested []record.Tombstone) []PendingDelete {
	return PendingDeletes(precondition.ObserveDeletes(ctx, r.Cluster, requested), r.Cluster.Now())
}

// DeletesOf returns the deletes of releases that are not done.
func (r *Reader) DeletesOf(ctx context.Context, releases []*record.Record) ([]PendingDelete, error) {
	pending := []PendingDelete{}
	for _, known := range releases {
		requested, err := r.RequestedDeletes(ctx, known)
		if err != nil {
			return nil, err
		}
		for _, shown := range r.PendingDeletes(ctx, requested) {
			shown.Release = known.Release
			pending = append(pending, shown)
		}
	}
	return pending, nil
}

// FollowDeletes reports pending deletes with their state as text, each again when it has changed, until none is left.
func (r *Reader) FollowDeletes(
	ctx context.Context, requested []record.Tombstone, report func(id kinds.ID, state string),
) error {
	var objects []kinds.ID
	for _, item := range requested {
		objects = append(objects, item.ID)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reported := map[kinds.ID]string{}
	changes := waiter.Waiter{Changed: tombstone.Watch(ctx, r.Cluster, objects)}
	return changes.Until(ctx, func(ctx context.Context) (waiter.Result, error) {
		requested = slices.DeleteFunc(requested, func(item record.Tombstone) bool {
			pending := precondition.Delete{Tombstone: item, Seen: tombstone.Observe(ctx, r.Cluster, item.ID, item.UID)}
			if ctx.Err() != nil {
				return false
			}
			if state := pending.Seen.DescribeSince(); state != reported[item.ID] {
				reported[item.ID] = state
				report(item.ID, pending.Describe(r.Cluster.Now()))
			}
			return !pending.Seen.IsPending()
		})
		if len(requested) == 0 {
			return waiter.Done, nil
		}
		return waiter.Again, nil
	})
}
