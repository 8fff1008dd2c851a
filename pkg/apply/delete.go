package apply

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
func (r *run) bury(m *payload.Manifest) (Change, error) {
	id := m.ID()
	asked, _ := r.options.Journal.asked(id)
	seen := tombstone.Observe(r.requests, r.cluster, id, asked.UID)
	switch {
	case seen.State == tombstone.Absent && asked.UID == "":
		return Change{Action: Absent}, nil
	case seen.State == tombstone.Absent:
		return r.isGone(id, asked.UID)
	case seen.State == tombstone.Unknown:
		return r.pending(m, seen)
	}
	if err := r.refuseOthers(id); err != nil {
		return Change{}, err
	}
	isBack := seen.State == tombstone.Reappeared || asked.IsBack || r.options.Journal.HasDeleted(id)
	switch {
	case seen.State == tombstone.Terminating:
		return r.pending(m, seen)
	case r.options.Mode == graph.Update:
		return r.deleteNow(m, seen, isBack)
	case isBack:
		return r.isBack(id, seen), nil
	case asked.Sent:
		return Change{Action: Pending, UID: seen.UID, Message: didNotReach}, nil
	default:
		return Change{Action: Left, UID: seen.UID, Message: leaves[r.options.Mode]}, nil
	}
}

// didNotReach is why an object is there whose end was asked for.
const didNotReach = "its delete was asked for, and did not reach it: the next update will ask again"

// leaves says why an object is left that no update has come to yet.
var leaves = map[graph.Mode]string{
	graph.Install:   "an install deletes nothing: the next update will",
	graph.Reconcile: "a reconcile deletes nothing: the next update will",
}

// deleteNow deletes the object that was seen, and no other.
func (r *run) deleteNow(m *payload.Manifest, seen tombstone.Observation, isBack bool) (Change, error) {
	id := m.ID()
	if isBack {
		r.announce(id, seen.UID, tombstone.BackAgain, madeAnew(seen))
	}
	// Whatever happens now, the record knows what was asked for.
	if err := r.ask(m, seen.UID); err != nil {
		return Change{}, err
	}
	r.options.Journal.send(id, seen.UID)
	isHit, err := r.delete(id, seen.UID)
	if err != nil {
		return Change{}, err
	}
	if isHit {
		r.announce(id, seen.UID, tombstone.Requested, "the release asks for it to be deleted")
	}
	after := tombstone.Observe(r.requests, r.cluster, id, seen.UID)
	switch after.State {
	case tombstone.Absent:
		return r.isGone(id, seen.UID)
	case tombstone.Reappeared: // at once, or before our request came
		return r.isBack(id, after), nil
	default:
		return Change{Action: Pending, UID: seen.UID, Message: after.Describe(r.cluster.Now())}, nil
	}
}

// refuseOthers refuses to delete what another release has.
func (r *run) refuseOthers(id kinds.ID) error {
	resource, err := r.cluster.FindKind(r.requests, id.GroupKind())
	if err != nil {
		return err
	}
	head, _, err := r.head(resource, id)
	if owner, isOthers := head.Owner(r.options.Release); isOthers {
		return refusal{ResourceConflict, "it is of release " + owner + ": only that one may delete it"}
	}
	return err
}

// isGone notes that a delete is done.
func (r *run) isGone(id kinds.ID, uid types.UID) (Change, error) {
	r.announce(id, uid, tombstone.Gone, "it is gone")
	r.options.Journal.forget(id, uid)
	return Change{Action: Deleted}, nil
}

// pending is about an object that is on its way out, or of which nothing is known.
func (r *run) pending(m *payload.Manifest, seen tombstone.Observation) (Change, error) {
	change := Change{Action: Pending, UID: seen.UID, Message: seen.Describe(r.cluster.Now())}
	if seen.State == tombstone.Terminating {
		r.announce(m.ID(), seen.UID, tombstone.StillTerminating, change.Message)
	}
	if r.options.Mode != graph.Update {
		return change, nil
	}
	if err := r.ask(m, seen.UID); err != nil || seen.State != tombstone.Terminating {
		return change, err
	}
	r.options.Journal.send(m.ID(), seen.UID) // by whomever
	return change, nil
}

// isBack is about an object that was made anew, and that this run does not delete again.
func (r *run) isBack(id kinds.ID, seen tombstone.Observation) Change {
	r.announce(id, seen.UID, tombstone.BackAgain, madeAnew(seen))
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
func (r *run) ask(m *payload.Manifest, uid types.UID) error {
	if asked, isAsked := r.options.Journal.asked(m.ID()); isAsked && asked.UID == uid && m.ID().GroupKind() != kinds.Job {
		return nil
	}
	return r.options.Journal.Note(r.requests, func(known *record.Record) {
		known.ForgetJob(m.ID()) // should it ever come back, it runs again
		known.Ask(record.Tombstone{ID: m.ID(), UID: uid, Version: r.options.Version, Asked: metav1.NewTime(r.cluster.Now().Truncate(time.Second))})
	})
}

// delete asks for the end of the object with a UID, and says whether it hit it. That it is
// gone already, or another one has come in its place, is as good.
func (r *run) delete(id kinds.ID, uid types.UID) (isHit bool, err error) {
	resource, err := r.cluster.FindKind(r.requests, id.GroupKind())
	if errors.Is(err, cluster.ErrNotServed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = r.cluster.Delete(r.requests, resource, id.Namespace, id.Name, uid)
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
func (r *run) recreate(o *object, fixed []string) (Change, error) {
	m, resource := o.Manifest, o.resource
	if err := mayRecreate(resource, m, fixed); err != nil {
		return Change{}, err
	}
	live, err := r.cluster.Head(r.requests, resource, m.ID().Namespace, m.ID().Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return Change{}, err
	}
	if err == nil {
		if err := r.keepScale(o); err != nil {
			return Change{}, err
		}
		if _, err := r.delete(m.ID(), live.UID); err != nil {
			return Change{}, err
		}
		if seen := tombstone.Observe(r.requests, r.cluster, m.ID(), live.UID); seen.State != tombstone.Absent && seen.State != tombstone.Reappeared {
			return Change{}, r.leaving(m, live.UID)
		}
	}
	o.isThere = false
	applied, err := r.apply(o, cluster.Forced)
	if err != nil {
		return Change{}, err
	}
	change := r.applied(o, applied, inventory.HeadOf(o.resource, applied.Object), Recreated)
	change.Message = cannotChange(fixed)
	return change, nil
}

// leaving says of an object that is being deleted what holds it. It is waited for like
// all that may heal: in between, others get their turn. The text has no age in it: it is told
// beside that of the wait, and would be older each time.
func (r *run) leaving(m *payload.Manifest, uid types.UID) error {
	seen := tombstone.Observe(r.requests, r.cluster, m.ID(), uid)
	return leaving{"it is being deleted, and can only be made anew when it is gone: " + seen.DescribeSince()}
}
