package object

import (
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A deleter deletes objects, and records the deletes that it requests.
type deleter struct{ *applierScope }

// delete deletes the object of a tombstone, in an update, and waits for nothing.
func (d *deleter) delete(m *payload.Manifest) (Change, error) {
	f := d.gatherFacts(m)
	switch what := decideDeletion(f); what {
	case alreadyAbsent:
		return Change{Action: Absent}, nil
	case noteDeleted:
		return d.recordDeleted(m.ID(), f.requested.UID)
	case leaveUnknown, awaitDeletion:
		return d.pendingChange(m, f.seen)
	case lookAgain:
		return Change{}, d.unknownFailure(m, f.seen)
	case refuseDeletion:
		return Change{}, ownedByOnly(f.owner)
	case deleteNow:
		return d.deleteNow(m, f.seen, f.isRemade())
	case leaveRemade:
		return d.reappearedChange(m.ID(), f.seen), nil
	default:
		if what == leaveForUpdate && f.mode == graph.Install {
			d.options.Journal.edit(func(known *record.Record) {
				known.Leave(record.Leftover{ID: m.ID(), UID: f.seen.UID})
			})
		}
		return leftChange(what, f), nil
	}
}

// leftChange returns the change of an object that this run does not delete.
func leftChange(what deletion, f deletionFacts) Change {
	switch what {
	case leaveRemade:
		return Change{Action: Reappeared, UID: f.seen.UID, Message: isBackUntilNext(f.seen)}
	case leaveUnreached:
		return Change{Action: Pending, UID: f.seen.UID, Message: didNotReach}
	default:
		return Change{Action: Left, UID: f.seen.UID, Message: leaves[f.mode]}
	}
}

func ownedByOnly(owner string) error {
	return refusal{ResourceConflict, "owned by release " + owner + ", and only that release may delete it"}
}

// didNotReach is the message of an object that exists although its delete was requested.
const didNotReach = "its delete was requested and did not arrive: the next update requests it again"

// leaves are the messages of objects that the next update deletes, by mode.
var leaves = map[graph.Mode]string{
	graph.Install:   "an install deletes nothing: the next apply will",
	graph.Reconcile: "a reconcile deletes nothing: the next update will",
	graph.Update:    "nothing is deleted while manifests are left out: the next update will",
}

// deleteNow deletes the observed object, and no other of the same name.
func (d *deleter) deleteNow(m *payload.Manifest, seen tombstone.Observation, isBack bool) (Change, error) {
	id := m.ID()
	if isBack {
		d.report(id, seen.UID, tombstone.ReasonReappeared, recreatedBy(seen))
	}
	// The record has the request whatever happens next.
	if err := d.recordRequest(m, seen.UID); err != nil {
		return Change{}, err
	}
	d.options.Journal.edit(func(known *record.Record) { known.MarkSent(id, seen.UID) })
	isHit, err := d.request(id, seen.UID)
	if err != nil {
		return Change{}, err
	}
	if isHit {
		d.report(id, seen.UID, tombstone.ReasonRequested, "the release deletes it")
	}
	after := tombstone.Observe(d.requestCtx, d.cluster, id, seen.UID)
	switch {
	case after.State == tombstone.Absent:
		return d.recordDeleted(id, seen.UID)
	case after.State == tombstone.Reappeared: // recreated at once, or before the request arrived
		return d.reappearedChange(id, after), nil
	case after.State == tombstone.Unknown && !isHit: // nothing has confirmed the delete
		return Change{}, d.unknownFailure(m, after)
	default:
		return Change{Action: Pending, UID: seen.UID, Message: after.Describe(d.cluster.Now())}, nil
	}
}

// recordDeleted notes that a delete is done.
func (d *deleter) recordDeleted(id kinds.ID, uid types.UID) (Change, error) {
	d.report(id, uid, tombstone.ReasonDeleted, "the object is deleted")
	d.options.Journal.edit(func(known *record.Record) { known.ForgetDelete(id, uid) })
	return Change{Action: Deleted}, nil
}

// unknownFailure returns the failure of an object that this run has to delete, but can't read. The object is not
// deleted unread: the step fails, and is retried like others. Until then, the record has the request.
func (d *deleter) unknownFailure(m *payload.Manifest, seen tombstone.Observation) error {
	if d.options.Mode == graph.Update { // otherwise the record has the object as left by an install
		if err := d.recordRequest(m, seen.Requested); err != nil {
			return err
		}
	}
	return fmt.Errorf("cannot find out whether it exists, so it is not deleted yet: %w", seen.Err)
}

// pendingChange returns the change of a terminating object, or of one whose state is unknown.
func (d *deleter) pendingChange(m *payload.Manifest, seen tombstone.Observation) (Change, error) {
	change := Change{Action: Pending, UID: seen.UID, Message: seen.Describe(d.cluster.Now())}
	if seen.State == tombstone.Terminating {
		d.report(m.ID(), seen.UID, tombstone.ReasonStillTerminating, change.Message)
	}
	if seen.State != tombstone.Terminating || d.options.Mode != graph.Update {
		return change, nil
	}
	if err := d.recordRequest(m, seen.UID); err != nil {
		return change, err
	}
	// perhaps another client has sent it
	d.options.Journal.edit(func(known *record.Record) { known.MarkSent(m.ID(), seen.UID) })
	return change, nil
}

// reappearedChange returns the change of an object that was created again, and that this run does not delete again.
func (d *deleter) reappearedChange(id kinds.ID, seen tombstone.Observation) Change {
	d.report(id, seen.UID, tombstone.ReasonReappeared, recreatedBy(seen))
	return Change{Action: Reappeared, UID: seen.UID, Message: isBackUntilNext(seen)}
}

// isBackUntilNext returns the message of an object that was created again.
func isBackUntilNext(seen tombstone.Observation) string {
	return recreatedBy(seen) + ": the next update deletes it again"
}

// report writes a Kubernetes event about an object that the release deletes.
func (d *deleter) report(id kinds.ID, uid types.UID, what tombstone.EventReason, message string) {
	d.recordEvent(tombstone.Event(id, uid, what, message))
}

func recreatedBy(seen tombstone.Observation) string {
	return "it was deleted, and created again by " + seen.MadeBy
}

// recordRequest records the requested delete of an object, if the record does not have it yet.
func (d *deleter) recordRequest(m *payload.Manifest, uid types.UID) error {
	requested, isRequested := d.options.Journal.requestedDelete(m.ID())
	if isRequested && requested.UID == uid && m.ID().GroupKind() != kinds.Job {
		return nil
	}
	return d.options.Journal.Note(d.requestCtx, func(known *record.Record) {
		known.ForgetJob(m.ID()) // a Job that is created again runs again
		known.RequestDelete(record.Tombstone{
			ID:          m.ID(),
			UID:         uid,
			Version:     d.options.Version,
			RequestedAt: metav1.NewTime(d.cluster.Now().Truncate(time.Second)),
		})
	})
}

// request requests the delete of the object with a UID, and reports whether the server has accepted it. It is not an
// error if the object does not exist, or another one has its name.
func (d *deleter) request(id kinds.ID, uid types.UID) (isHit bool, err error) {
	resource, err := d.cluster.FindKind(d.requestCtx, id.GroupKind())
	if errors.Is(err, cluster.ErrNotServed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = d.cluster.Delete(d.requestCtx, resource, id.Namespace, id.Name, uid)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// terminatingFailure returns the failure of a terminating object, with its finalizers. Its text has no age, since it is
// shown beside the age of the wait, and has to stay the same with each try.
func (d *deleter) terminatingFailure(m *payload.Manifest, uid types.UID) error {
	seen := tombstone.Observe(d.requestCtx, d.cluster, m.ID(), uid)
	return terminatingError{"it is terminating, and can be recreated only after that: " + seen.DescribeSince()}
}

// facts returns the facts about the object of a tombstone.
func (d *deleter) gatherFacts(m *payload.Manifest) (f deletionFacts) {
	id := m.ID()
	f.requested, _ = d.options.Journal.requestedDelete(id)
	f.mode, f.leaves, f.hasDeleted = d.options.Mode, d.options.LeavesDeletes, d.options.Journal.HasDeleted(id)
	f.seen = tombstone.Observe(d.requestCtx, d.cluster, id, f.requested.UID)
	if f.seen.State == tombstone.Absent {
		return f
	}
	d.options.Journal.Read(func(r *record.Record) {
		isOfName := func(leftover record.Leftover) bool {
			return f.seen.State == tombstone.Unknown && leftover.ID == id
		}
		f.wasLeft = r.WasLeft(id, f.seen.UID) || slices.ContainsFunc(r.Left, isOfName)
	})
	if f.seen.Release != d.options.Release {
		f.owner = f.seen.Release
	}
	return f
}
