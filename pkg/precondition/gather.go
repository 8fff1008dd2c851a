package precondition

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
)

// atOnce bounds the requests at a time.
const atOnce = 16

// maxAdvice limits the time of the checks that only warn.
const maxAdvice = time.Minute

// An Input describes the update.
type Input struct {
	Payload   *payload.Payload
	Before    *inventory.Inventory // objects of the payload's kinds; nil if there is no inventory
	Record    *record.Record       // record of the release, as it was loaded; it has the release's name
	Namespace string               // namespace of the record
	Standard  ready.Standard       // standard of readiness; empty means ready.Full
	// IsShareable is true if others may use the namespace of the record: Runlevel's own namespace for records is not
	// shareable.
	IsShareable bool
	// IsRecovered is true if there is no record: the newest version is from the objects of the release.
	IsRecovered bool
	// CreateNamespace is true if the apply creates the namespace of objects whose manifests name none.
	CreateNamespace bool
	// Rollback is set if the payload has the files of an earlier update of the record.
	Rollback *record.Rollback
	// Lock is the lock of the release; nil if its holder does not matter.
	Lock *lock.Lock
}

// Gather reads all facts that the checks need. A fact that can't be read is recorded as such;
// an error means that no check is possible.
func Gather(ctx context.Context, c *cluster.Cluster, input Input) (*Facts, error) {
	// All other reads need discovery. Every cluster serves Namespaces.
	if _, err := c.FindKind(ctx, kinds.Namespace); err != nil {
		return nil, err
	}
	f := &Facts{Payload: input.Payload, Record: input.Record, Rollback: input.Rollback}
	held, err := input.holder(ctx)
	if err != nil {
		return nil, err
	}
	if f.Elsewhere, err = input.elsewhere(ctx, c); err != nil && ctx.Err() == nil {
		return nil, err
	}
	f.Writers, f.MissingNamespace = input.writers(ctx, c), input.missingNamespace(ctx, c)
	places := input.locate(ctx, c)
	f.Held = held
	f.Unserved, f.WithoutNamespace = unservedManifests(places), withoutNamespace(places)
	f.Deletes = ObserveDeletes(ctx, c, Pending(input.Record, input.Before))
	f.Terminating = input.findTerminating(ctx, c, places, f.Deletes)
	f.TombstoneObjects, f.Claims = input.tombstoneObjects(), input.claims(ctx, c, places)
	f.Deleted = input.findDeleted(ctx, c, places)
	if !input.isApplied() {
		advisory, cancel := context.WithTimeout(ctx, maxAdvice)
		defer cancel()
		f.readData(ctx, c, places)
		f.readDefinitions(ctx, advisory, c, places)
		f.readNodes(advisory, c, places)
		f.readBudgets(advisory, c)
		f.readDeprecated(advisory, c)
	}
	f.Missing, f.RightsErr = input.missingRights(ctx, c, places)
	if len(f.Missing) > 0 {
		f.User = cluster.UserOf(ctx, c).Username
	}
	f.readAcks(ctx, c)
	f.Now = c.Now()
	if ctx.Err() != nil { // every read has failed for this reason
		return nil, context.Cause(ctx)
	}
	return f, nil
}

// holder returns the holder of the lock. If we may not read the lock, MissingRights reports it.
func (input Input) holder(ctx context.Context) (*lock.Holder, error) {
	if input.Lock == nil {
		return nil, nil
	}
	held, err := input.Lock.Holder(ctx)
	if reason.Of(err) == lock.ReasonDenied {
		return nil, nil
	}
	return held, err
}

// Pending returns the deletes of a release that may not be finished: requested deletes, and deletes of terminating
// objects, also by others. So no delete is lost with the record. Objects that are deleted with a Namespace or a
// definition are left out.
func Pending(known *record.Record, before *inventory.Inventory) []record.Tombstone {
	pending, goes := slices.Clone(known.Tombstones), map[kinds.ID]bool{}
	if before == nil {
		return pending
	}
	for _, tombstone := range pending {
		goes[tombstone.ID] = true
	}
	var terminating []objectmeta.LiveMetadata
	for _, head := range before.Of(known.Release) {
		if head.Terminating && !goes[head.ID] {
			terminating = append(terminating, head)
		}
	}
	for _, head := range terminating {
		goes[head.ID] = true
	}
	for _, head := range terminating {
		if !slices.ContainsFunc(objectmeta.Containers(head.ID, head.Resource), func(id kinds.ID) bool {
			return goes[id]
		}) {
			pending = append(pending, record.Tombstone{ID: head.ID, UID: head.UID})
		}
	}
	return pending
}

// ObserveDeletes observes the objects of requested deletes.
func ObserveDeletes(ctx context.Context, c *cluster.Cluster, requested []record.Tombstone) []Delete {
	deletes := make([]Delete, len(requested))
	concurrently(len(requested), func(i int) {
		deletes[i] = Delete{Tombstone: requested[i], Seen: tombstone.Observe(ctx, c, requested[i].ID, requested[i].UID)}
	})
	return deletes
}

// concurrently calls do with each index below n, some at a time.
func concurrently(n int, do func(i int)) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = group.Wait()
}

// tombstoneObjects returns the existing objects of tombstones: an install has deleted none.
func (input Input) tombstoneObjects() []kinds.ID {
	if input.Before == nil {
		return nil
	}
	var found []kinds.ID
	for _, m := range input.Payload.Manifests {
		if _, exists := input.Before.Find(m.ID()); exists && m.IsTombstone() {
			found = append(found, m.ID())
		}
	}
	return found
}

// claims finds the objects that other releases have.
func (input Input) claims(ctx context.Context, c *cluster.Cluster, places []place) []Claim {
	if input.Before == nil {
		return nil
	}
	owners := make([]string, len(places))
	concurrently(len(places), func(i int) {
		switch place := places[i]; {
		case !place.isServed:
		case input.Before.Covers(place.id()):
			owners[i], _ = input.Before.OwnerOf(place.id(), input.Record.Release)
		default:
			owners[i] = input.owner(ctx, c, place)
		}
	})
	var claims []Claim
	for i, owner := range owners {
		if owner != "" {
			claims = append(claims, Claim{Manifest: places[i].manifest, Release: owner})
		}
	}
	return claims
}

// owner returns the release of one object of a kind that could not be listed. If the object can't be
// read, its release is checked when it is applied.
func (input Input) owner(ctx context.Context, c *cluster.Cluster, p place) string {
	id := p.id()
	object, err := c.GetMetadata(ctx, p.resource, id.Namespace, id.Name)
	if err != nil {
		return ""
	}
	owner, _ := objectmeta.Of(p.resource, object).OtherOwner(input.Record.Release)
	return owner
}
