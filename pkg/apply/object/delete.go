package object

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/record"
	"github.com/runlevel/runlevel/pkg/tombstone"
)

// bury deletes the object of a tombstone, in an update, and waits for nothing.
func (a *Applier) bury(m *payload.Manifest) (Change, error) {
	f, err := a.gatherDeletion(m)
	if err != nil {
		return Change{}, err
	}
	switch what := decideDeletion(f); what {
	case nothingThere:
		return Change{Action: Absent}, nil
	case noteGone:
		return a.isGone(m.ID(), f.asked.UID)
	case askLater, awaitGone:
		return a.pending(m, f.seen)
	case refuseDeletion:
		return Change{}, ownedByOnly(f.owner)
	case deleteNow:
		return a.deleteNow(m, f.seen, f.isRemade())
	case leaveRemade:
		return a.isBack(m.ID(), f.seen), nil
	default:
		return left(what, f), nil
	}
}

// left is what came of an object that this run does not delete.
func left(what deletion, f deletionFacts) Change {
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
	return refusal{ResourceConflict, "it is of release " + owner + ": only that one may delete it"}
}

// didNotReach is why an object is there whose end was asked for.
const didNotReach = "its delete was asked for, and did not reach it: the next update will ask again"

// leaves says why an object is left that no update has come to yet.
var leaves = map[graph.Mode]string{
	graph.Install:   "an install deletes nothing: the next update will",
	graph.Reconcile: "a reconcile deletes nothing: the next update will",
}

// deleteNow deletes the object that was seen, and no other.
func (a *Applier) deleteNow(m *payload.Manifest, seen tombstone.Observation, isBack bool) (Change, error) {
	id := m.ID()
	if isBack {
		a.announce(id, seen.UID, tombstone.BackAgain, madeAnew(seen))
	}
	// Whatever happens now, the record knows what was asked for.
	if err := a.ask(m, seen.UID); err != nil {
		return Change{}, err
	}
	a.options.Journal.send(id, seen.UID)
	isHit, err := a.delete(id, seen.UID)
	if err != nil {
		return Change{}, err
	}
	if isHit {
		a.announce(id, seen.UID, tombstone.Requested, "the release asks for it to be deleted")
	}
	after := tombstone.Observe(a.requests, a.cluster, id, seen.UID)
	switch after.State {
	case tombstone.Absent:
		return a.isGone(id, seen.UID)
	case tombstone.Reappeared: // at once, or before our request came
		return a.isBack(id, after), nil
	default:
		return Change{Action: Pending, UID: seen.UID, Message: after.Describe(a.cluster.Now())}, nil
	}
}

// isGone notes that a delete is done.
func (a *Applier) isGone(id kinds.ID, uid types.UID) (Change, error) {
	a.announce(id, uid, tombstone.Gone, "it is gone")
	a.options.Journal.forget(id, uid)
	return Change{Action: Deleted}, nil
}

// pending is about an object that is on its way out, or of which nothing is known.
func (a *Applier) pending(m *payload.Manifest, seen tombstone.Observation) (Change, error) {
	change := Change{Action: Pending, UID: seen.UID, Message: seen.Describe(a.cluster.Now())}
	if seen.State == tombstone.Terminating {
		a.announce(m.ID(), seen.UID, tombstone.StillTerminating, change.Message)
	}
	if a.options.Mode != graph.Update {
		return change, nil
	}
	if err := a.ask(m, seen.UID); err != nil || seen.State != tombstone.Terminating {
		return change, err
	}
	a.options.Journal.send(m.ID(), seen.UID) // by whomever
	return change, nil
}

// isBack is about an object that was made anew, and that this run does not delete again.
func (a *Applier) isBack(id kinds.ID, seen tombstone.Observation) Change {
	a.announce(id, seen.UID, tombstone.BackAgain, madeAnew(seen))
	return Change{Action: Reappeared, UID: seen.UID, Message: isBackUntilNext(seen)}
}

// isBackUntilNext says of an object that was made anew how long it stays.
func isBackUntilNext(seen tombstone.Observation) string {
	return madeAnew(seen) + ": the next update deletes it again"
}

func madeAnew(seen tombstone.Observation) string {
	return "it was deleted, and is there again, made by " + seen.MadeBy
}

// ask notes in the record that the end of an object is asked for, if the record does not have it yet.
func (a *Applier) ask(m *payload.Manifest, uid types.UID) error {
	if asked, isAsked := a.options.Journal.asked(m.ID()); isAsked && asked.UID == uid && m.ID().GroupKind() != kinds.Job {
		return nil
	}
	return a.options.Journal.Note(a.requests, func(known *record.Record) {
		known.ForgetJob(m.ID()) // should it ever come back, it runs again
		known.Ask(record.Tombstone{ID: m.ID(), UID: uid, Version: a.options.Version, Asked: metav1.NewTime(a.cluster.Now().Truncate(time.Second))})
	})
}

// delete asks for the end of the object with a UID, and says whether it hit it. That it is
// gone already, or another one has come in its place, is as good.
func (a *Applier) delete(id kinds.ID, uid types.UID) (isHit bool, err error) {
	resource, err := a.cluster.FindKind(a.requests, id.GroupKind())
	if errors.Is(err, cluster.ErrNotServed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = a.cluster.Delete(a.requests, resource, id.Namespace, id.Name, uid)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// mayRecreate says why an object that can't be changed must not be deleted and made anew
// either: which fields it is about, and what to do.
func mayRecreate(resource cluster.Resource, m *payload.Manifest, fixed []string) error {
	switch {
	case m.Object().GetAnnotations()[RecreateAnnotation] != "true":
		return refusal{ResourceInvalid, cannotChange(fixed) + ": " + wayOut(resource.GroupKind())}
	case isPrecious(resource.GroupKind()):
		return refusal{ResourceInvalid, cannotChange(fixed) + ", and to make a " + resource.Kind + " anew would lose all that is in it: " + RecreateAnnotation + " does not hold for it"}
	}
	return nil
}

// recreate deletes an object that can't be changed and makes it anew, if its manifest
// allows it.
func (a *Applier) recreate(o *target, fixed []string) (Change, error) {
	m, resource := o.Manifest, o.resource
	if err := mayRecreate(resource, m, fixed); err != nil {
		return Change{}, err
	}
	live, err := a.cluster.Head(a.requests, resource, m.ID().Namespace, m.ID().Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return Change{}, err
	}
	if err == nil {
		if err := a.keepScale(o); err != nil {
			return Change{}, err
		}
		if _, err := a.delete(m.ID(), live.UID); err != nil {
			return Change{}, err
		}
		if seen := tombstone.Observe(a.requests, a.cluster, m.ID(), live.UID); seen.State != tombstone.Absent && seen.State != tombstone.Reappeared {
			return Change{}, a.leaving(m, live.UID)
		}
	}
	o.isThere = false
	applied, err := a.apply(o, cluster.Forced)
	if err != nil {
		return Change{}, err
	}
	change := a.applied(o, applied, inventory.HeadOf(o.resource, applied.Object), Recreated)
	change.Message = cannotChange(fixed)
	return change, nil
}

// leaving says of an object that is being deleted what holds it. It is waited for like
// all that may heal: in between, others get their turn. The text has no age in it: it is told
// beside that of the wait, and would be older each time.
func (a *Applier) leaving(m *payload.Manifest, uid types.UID) error {
	seen := tombstone.Observe(a.requests, a.cluster, m.ID(), uid)
	return leaving{"it is being deleted, and can only be made anew when it is gone: " + seen.DescribeSince()}
}
