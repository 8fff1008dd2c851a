package precondition

import (
	"context"
	"slices"

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

// atOnce bounds how much is asked for at a time.
const atOnce = 16

// A GatherInput is what is about to be done.
type GatherInput struct {
	Payload   *payload.Payload
	Before    *inventory.Inventory // of the kinds of the payload; nil asks for no objects
	Record    *record.Record       // of the release, as it was loaded; it says the release's name
	Namespace string               // where that record is
	Standard  ready.Standard       // how objects are awaited; ready.Full, if it is empty
	// IsRecovered says that there is no record: the newest version is from the objects of the release.
	IsRecovered bool
	// Lock is asked for its holder, unless it is nil.
	Lock *lock.Lock
}

// Gather asks for all facts that the checks need. What can't be asked for is a fact, too;
// an error means that nothing can be said at all.
func Gather(ctx context.Context, c *cluster.Cluster, q GatherInput) (*Facts, error) {
	// Everything else depends on knowing the kinds. This one is always there.
	if _, err := c.FindKind(ctx, kinds.Namespace); err != nil {
		return nil, err
	}
	f := &Facts{Payload: q.Payload, Record: q.Record}
	held, err := q.held(ctx)
	if err != nil {
		return nil, err
	}
	if f.Elsewhere, err = q.elsewhere(ctx, c); err != nil && ctx.Err() == nil {
		return nil, err
	}
	places := q.locate(ctx, c)
	f.Held = held
	f.Unserved, f.WithoutNamespace = unserved(places), withoutNamespace(places)
	f.Deletes = ObserveDeletes(ctx, c, Pending(q.Record, q.Before))
	f.Terminating = q.terminating(ctx, c, places, f.Deletes)
	f.TombstoneObjects, f.Claims = q.there(), q.claims(ctx, c, places)
	f.Missing, f.RightsErr = q.missing(ctx, c, places)
	if len(f.Missing) > 0 {
		f.User = cluster.UserOf(ctx, c)
	}
	f.readAcks(ctx, c)
	f.Now = c.Now()
	if ctx.Err() != nil { // which may look as if much could not be asked for
		return nil, context.Cause(ctx)
	}
	return f, nil
}

// held says who holds the lock. That we may not look is told with the other rights.
func (q GatherInput) held(ctx context.Context) (*lock.Holder, error) {
	if q.Lock == nil {
		return nil, nil
	}
	held, err := q.Lock.Holder(ctx)
	if reason.Of(err) == lock.ReasonDenied {
		return nil, nil
	}
	return held, err
}

// Pending returns the deletes of a release that may not be done: those that it has asked for, and those
// of its objects that are terminating, whatever deleted them. So no delete is forgotten with the record. What
// goes with a Namespace or a definition is not counted beside that.
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
		if !slices.ContainsFunc(objectmeta.Containers(head.ID, head.Resource), func(id kinds.ID) bool { return goes[id] }) {
			pending = append(pending, record.Tombstone{ID: head.ID, UID: head.UID})
		}
	}
	return pending
}

// ObserveDeletes looks at the objects whose delete was asked for.
func ObserveDeletes(ctx context.Context, c *cluster.Cluster, asked []record.Tombstone) []Delete {
	deletes := make([]Delete, len(asked))
	concurrently(len(asked), func(i int) {
		deletes[i] = Delete{Tombstone: asked[i], Seen: tombstone.Observe(ctx, c, asked[i].ID, asked[i].UID)}
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
	_ = group.Wait() // which has no errors
}

// there are the objects of tombstones that are there: an install has deleted none.
func (q GatherInput) there() []kinds.ID {
	if q.Before == nil {
		return nil
	}
	var found []kinds.ID
	for _, m := range q.Payload.Manifests {
		if _, exists := q.Before.Find(m.ID()); exists && m.IsTombstone() {
			found = append(found, m.ID())
		}
	}
	return found
}

// claims finds the objects that other releases have.
func (q GatherInput) claims(ctx context.Context, c *cluster.Cluster, places []place) []Claim {
	if q.Before == nil {
		return nil
	}
	owners := make([]string, len(places))
	concurrently(len(places), func(i int) {
		switch at := places[i]; {
		case !at.isServed:
		case q.Before.Covers(at.id()):
			owners[i], _ = q.Before.OwnerOf(at.id(), q.Record.Release)
		default:
			owners[i] = q.owner(ctx, c, at)
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

// owner asks for one object of a kind that could not be listed. What can't be asked for
// is found out when it is applied: nothing is ever applied without knowing.
func (q GatherInput) owner(ctx context.Context, c *cluster.Cluster, at place) string {
	id := at.id()
	object, err := c.GetMetadata(ctx, at.resource, id.Namespace, id.Name)
	if err != nil {
		return ""
	}
	owner, _ := objectmeta.Of(at.resource, object).OtherOwner(q.Record.Release)
	return owner
}
