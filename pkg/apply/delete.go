package apply

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/record"
	"github.com/runlevel/runlevel/pkg/tombstone"
)

// bury deletes the object of a tombstone, in an update, and waits for nothing.
func (r *run) bury(m *payload.Manifest) (Change, error) {
	id := m.ID()
	asked := r.options.Journal.asked(id)
	seen := tombstone.Observe(r.requests, r.cluster, buried(id), asked.UID)
	if seen.State != tombstone.Present && seen.State != tombstone.Reappeared {
		return r.leave(m, seen)
	}
	if r.options.Mode != graph.Update {
		return r.notHere(m, seen), nil
	}
	if seen.State == tombstone.Reappeared || asked.IsBack {
		r.announce(id, seen.UID, tombstone.BackAgain, "it was deleted, and is there again, made by "+seen.MadeBy)
	}
	if err := r.refuseOthers(id); err != nil {
		return Change{}, err
	}
	// Whatever happens now, the record knows what was asked for.
	if err := r.ask(m, seen.UID); err != nil {
		return Change{}, err
	}
	if err := r.delete(id, seen.UID); err != nil {
		return Change{}, err
	}
	r.announce(id, seen.UID, tombstone.Requested, "the release asks for it to be deleted")
	after := tombstone.Observe(r.requests, r.cluster, buried(id), seen.UID)
	if after.State == tombstone.Absent {
		return r.isGone(id, seen.UID)
	}
	return Change{Action: Pending, UID: seen.UID, Message: after.Describe(r.cluster.Now())}, nil
}

// refuseOthers refuses to delete what another release has.
func (r *run) refuseOthers(id kinds.ID) error {
	resource, err := r.cluster.FindKind(r.requests, id.GroupKind())
	if err != nil {
		return err
	}
	head, isThere, err := r.head(resource, id)
	if owner, isOthers := othersOwn(head, r.options.Release); err == nil && isThere && isOthers {
		return refusal{ResourceConflict, "it is of release " + owner + ": only that one may delete it"}
	}
	return err
}

// isGone notes that a delete is done.
func (r *run) isGone(id kinds.ID, uid types.UID) (Change, error) {
	r.announce(id, uid, tombstone.Gone, "it is gone")
	return Change{Action: Deleted}, r.options.Journal.Note(r.requests, func(known *record.Record) { known.Forget(id, uid) })
}

// leave notes of an object that needs no delete how it stands.
func (r *run) leave(m *payload.Manifest, seen tombstone.Observation) (Change, error) {
	id, asked := m.ID(), r.options.Journal.asked(m.ID()).UID
	if seen.State == tombstone.Absent && asked == "" {
		return Change{Action: Absent}, nil
	}
	if seen.State == tombstone.Absent {
		return r.isGone(id, asked)
	}
	change := Change{Action: Pending, UID: seen.UID, Message: seen.Describe(r.cluster.Now())}
	if seen.State == tombstone.Terminating {
		r.announce(id, seen.UID, tombstone.StillTerminating, change.Message)
	}
	if r.options.Mode != graph.Update {
		return change, nil
	}
	return change, r.ask(m, seen.UID)
}

// notHere is about an object that is there in a mode that deletes nothing.
func (r *run) notHere(m *payload.Manifest, seen tombstone.Observation) Change {
	if r.options.Mode == graph.Install {
		return Change{Action: Left, UID: seen.UID, Message: "an install deletes nothing: the next update will"}
	}
	if seen.UID == r.options.Journal.asked(m.ID()).UID {
		return Change{Action: Pending, UID: seen.UID, Message: "its delete was asked for, and did not reach it: the next update will ask again"}
	}
	if seen.State != tombstone.Reappeared && !r.options.Journal.hasBuried(m.ID()) {
		return Change{Action: Left, UID: seen.UID, Message: "a reconcile deletes nothing: the next update will"}
	}
	message := "it was deleted, and is there again, made by " + seen.MadeBy
	r.announce(m.ID(), seen.UID, tombstone.BackAgain, message)
	return Change{Action: Reappeared, UID: seen.UID, Message: message + ": the next update deletes it again"}
}

// ask notes in the record that the end of an object is asked for.
func (r *run) ask(m *payload.Manifest, uid types.UID) error {
	return r.options.Journal.Note(r.requests, func(known *record.Record) {
		known.ForgetJob(m.ID()) // should it ever come back, it runs again
		known.Ask(record.Tombstone{Object: m.ID(), UID: uid, Version: r.options.Version, Asked: metav1.NewTime(r.cluster.Now().Truncate(time.Second))})
	})
}

// delete asks for the end of the object with a UID. That it is gone already, or another
// one has come in its place, is as good.
func (r *run) delete(id kinds.ID, uid types.UID) error {
	resource, err := r.cluster.FindKind(r.requests, id.GroupKind())
	if errors.Is(err, cluster.ErrNotServed) {
		return nil
	}
	if err != nil {
		return err
	}
	err = r.cluster.Delete(r.requests, resource, id.Namespace, id.Name, uid)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// recreate deletes an object that can't be changed and makes it anew, if its manifest
// allows it. Else it says which fields it is about, and what to do.
func (r *run) recreate(resource cluster.Resource, m *payload.Manifest, fixed []string) (Change, error) {
	switch {
	case m.Object().GetAnnotations()[RecreateAnnotation] != "true":
		return Change{}, refusal{ResourceInvalid, cannotChange(fixed) + ": " + wayOut(resource.GroupKind())}
	case isPrecious(resource.GroupKind()):
		return Change{}, refusal{ResourceInvalid, cannotChange(fixed) + ", and to make a " + resource.Kind + " anew would lose all that is in it: " + RecreateAnnotation + " does not hold for it"}
	}
	live, err := r.cluster.Head(r.requests, resource, m.ID().Namespace, m.ID().Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return Change{}, err
	}
	if err == nil {
		if err := r.delete(m.ID(), live.UID); err != nil {
			return Change{}, err
		}
		if seen := tombstone.Observe(r.requests, r.cluster, buried(m.ID()), live.UID); seen.State != tombstone.Absent && seen.State != tombstone.Reappeared {
			return Change{}, r.leaving(m, live.UID)
		}
	}
	applied, err := r.apply(resource, m, r.labelled(m))
	if err != nil {
		return Change{}, err
	}
	r.follow.add(m, applied.Object)
	return Change{Action: Recreated, UID: applied.Object.GetUID(), Message: cannotChange(fixed)}, nil
}

// leaving says of an object that is being deleted what holds it. It is waited for like
// all that may heal: in between, others get their turn.
func (r *run) leaving(m *payload.Manifest, uid types.UID) error {
	seen := tombstone.Observe(r.requests, r.cluster, buried(m.ID()), uid)
	return leaving{"it is being deleted, and can only be made anew when it is gone: " + seen.Describe(r.cluster.Now())}
}

func buried(id kinds.ID) tombstone.Object {
	return tombstone.Object{Kind: id.GroupKind(), Namespace: id.Namespace, Name: id.Name}
}
