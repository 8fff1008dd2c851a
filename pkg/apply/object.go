package apply

import (
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/fields"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/ownership"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/ready"
)

// An object is one that is to become what its manifest says.
type object struct {
	*payload.Manifest
	resource cluster.Resource
	head     inventory.Head // as it was before, if it was there
	isThere  bool
	isMade   bool             // by this run, which has not heard of it until it was there
	isLean   bool             // fields were left out that the cluster does not know
	lost     []ownership.Loss // fields that others had set otherwise
	adopts   []string         // managers who would have no fields any more: of previews only
	added    []any            // to a list that others add to, beside the apply
	sent     *unstructured.Unstructured
	now      *unstructured.Unstructured // as it is once it has been dealt with
}

// version is the resourceVersion of an object that was dealt with.
func (o *object) version() string {
	if o.now != nil {
		return o.now.GetResourceVersion()
	}
	return o.head.ResourceVersion
}

// text is what an object is applied from. Its definition is part of that: what the server
// says of a custom resource changes with it, and leaves no trace in the object. Where the
// definition is not known, neither is the text.
func (r *run) text(m *payload.Manifest, resource cluster.Resource) (text inventory.Text, isKnown bool) {
	definition, isKnown := r.definitions.versionOf(resource)
	text = inventory.Text{Sum: m.Sum(), Metadata: m.Object(), Note: definition}
	if r.scaling.has(m.ID()) {
		text.Note += " scaled"
	}
	return text, isKnown
}

// isUntouched says whether nobody can have changed what is ours of an object since it was
// applied from the same manifest. One that is only ever made needs to be there, no more.
func (r *run) isUntouched(m *payload.Manifest, head inventory.Head, isThere bool) bool {
	if !isThere || !r.trusts(head) {
		return false
	}
	text, isKnown := r.text(m, head.Resource)
	isUntouched := isKnown && r.fingerprints.Move(r.known, head, text, func() bool {
		return r.countsChanges(head.Resource)
	})
	if isUntouched {
		r.fingerprints.Leave(head)
	}
	return isUntouched
}

// wasReady says whether an object was ready, and nobody has written it since.
func (r *run) wasReady(m *payload.Manifest, head inventory.Head) bool {
	text, isKnown := r.text(m, head.Resource)
	return isKnown && r.fingerprints.MoveReady(r.known, head.Metadata(), text, r.standard())
}

// standard is what readiness depends on, beside the object: by upstream's, some of it does
// not matter in an install.
func (r *run) standard() string {
	return fmt.Sprint(r.options.Standard, r.options.Standard == ready.Upstream && r.options.Mode == graph.Install)
}

// countsChanges says whether the generation of a resource's objects tells of each change of
// their bodies.
func (r *run) countsChanges(resource cluster.Resource) bool {
	return kinds.CountsChanges(resource.GroupKind()) || r.isCustom(resource)
}

// trusts says whether what was seen of an object before says how it is.
func (r *run) trusts(head inventory.Head) bool {
	return !r.options.Full && r.before.Age() < r.options.lookCounts && head.Release == r.options.Release && head.IsApplied && !head.Terminating
}

// isCustom says whether the objects of a resource are custom resources. Those of other
// servers may do as they like.
func (r *run) isCustom(resource cluster.Resource) bool {
	isCustom, err := r.cluster.IsCustom(r.requests, resource)
	return err == nil && isCustom
}

// set applies an object.
func (r *run) set(o *object) (Change, error) {
	began := r.cluster.Now()
	applied, err := r.applyFirst(o)
	if fixed := immutableFields(err); len(fixed) > 0 {
		return r.recreate(o, fixed)
	}
	if err != nil {
		return Change{}, err
	}
	if applied.Object.GetDeletionTimestamp() != nil {
		return Change{}, r.leaving(o.Manifest, applied.Object.GetUID())
	}
	if applied.Created {
		r.makeKnown(o, applied.Object)
	}
	after := inventory.HeadOf(o.resource, applied.Object)
	return r.applied(o, applied, after, r.action(o, applied, after, began)), nil
}

// makeKnown lets the server take notice of a Namespace that was made, before anything comes into it.
func (r *run) makeKnown(o *object, made *unstructured.Unstructured) {
	if o.resource.GroupKind() == kinds.Namespace {
		r.cluster.Settle(r.requests, o.resource, made)
	}
}

// applied takes in what came of an object.
func (r *run) applied(o *object, applied cluster.Applied, head inventory.Head, action Action) Change {
	r.settled(o, applied.Object)
	r.definitions.note(o.ID(), applied.Object)
	text, isKnown := r.text(o.Manifest, o.resource)
	r.fingerprints.Leave(head)
	isAsSent := !o.isLean && head.Says(o.Object()) && obeys(applied.Object, o.sent)
	if isKnown && (isAsSent || r.isMending) {
		r.fingerprints.Add(head, text)
	}
	return Change{Action: action, UID: applied.Object.GetUID(), Lost: o.lost}
}

// applyFirst applies an object. One that is not known of is made; if it is there all the
// same, somebody else has made it, and their tool's fields are adopted first: a field that
// they have set, and that we don't, is to go.
func (r *run) applyFirst(o *object) (cluster.Applied, error) {
	if !o.isThere {
		applied, refused := r.apply(o, cluster.OnlyNew|cluster.Forced)
		if !apierrors.IsConflict(refused) && !apierrors.IsAlreadyExists(refused) {
			return applied, refused
		}
		var err error
		if o.head, o.isThere, err = r.headNow(o.resource, o.ID()); err != nil {
			return cluster.Applied{}, err
		}
		if !o.isThere { // it is gone, or somebody wrote what is counted with it, such as a quota
			return cluster.Applied{}, refused
		}
		if err := r.refuseOwned(o.head); err != nil {
			return cluster.Applied{}, err
		}
		o.isMade = o.head.IsOf(r.options.Release) && r.before.Covers(o.ID())
	}
	if err := r.adopt(o); err != nil {
		return cluster.Applied{}, err
	}
	return r.apply(o, cluster.Plainly)
}

// adopt makes the fields of other tools ours, before we apply an object for the first time.
func (r *run) adopt(o *object) error {
	if !o.head.IsNew() || o.head.Terminating {
		return nil
	}
	now, adopted, err := ownership.Adopt(r.requests, r.cluster, o.resource, o.head.Metadata(), r.options.AdoptFrom)
	if apierrors.IsNotFound(err) { // somebody has just deleted it, and the apply makes it
		o.head, o.isThere = inventory.Head{}, false
		return nil
	}
	if err != nil {
		return err
	}
	o.head = inventory.HeadOf(o.resource, now)
	if len(adopted) > 0 {
		r.hasAdopted(o.Manifest, adopted)
	}
	return nil
}

// apply applies an object.
func (r *run) apply(o *object, how cluster.How) (cluster.Applied, error) {
	draft, err := r.draft(o)
	if err != nil {
		return cluster.Applied{}, err
	}
	return r.applyDraft(o, draft, how)
}

// draft is what is said of an object.
func (r *run) draft(o *object) (*unstructured.Unstructured, error) {
	draft := ownership.Draft(o.Object(), inventory.Label, r.options.Release)
	var live metav1.Object
	if o.isThere {
		live = o.head.Metadata()
	}
	isScaled, err := r.isScaled(o.Manifest, live)
	if err != nil || !isScaled {
		return draft, err
	}
	return draft, r.scale(o, draft)
}

// write applies a draft. What others have set otherwise is set anew, and said; but some
// fields are left to them.
func (r *run) write(o *object, draft *unstructured.Unstructured, how cluster.How) (cluster.Applied, error) {
	o.sent = draft
	applied, err := r.applySeen(o, draft, how)
	lost := ownership.Losses(err)
	if len(lost) == 0 {
		return applied, err
	}
	lost = slices.DeleteFunc(lost, func(loss ownership.Loss) bool { return slices.Contains(o.adopts, loss.Manager) })
	hasYielded, err := r.yield(o, draft, lost, how)
	if err != nil {
		return applied, err
	}
	if hasYielded {
		return r.write(o, draft, how)
	}
	if applied, err = r.applySeen(o, draft, how|cluster.Forced); err == nil {
		o.lost = maskedLosses(o.Manifest, lost)
	}
	return applied, err
}

// applySeen applies a draft to the object that was seen. If that has been written since, it is looked
// at once more before it is written, so that a request which was held up in a process that slept
// changes nothing that another applier has done meanwhile.
func (r *run) applySeen(o *object, draft *unstructured.Unstructured, how cluster.How) (cluster.Applied, error) {
	if !o.isThere || o.head.ResourceVersion == "" || how&cluster.Dry != 0 {
		return r.cluster.Apply(r.requests, o.resource, draft, how)
	}
	applied, err := r.cluster.Apply(r.requests, o.resource, cluster.At(draft, o.head.UID, o.head.ResourceVersion), how)
	if !apierrors.IsConflict(err) || len(ownership.Losses(err)) > 0 {
		return applied, err
	}
	now, isThere, err := r.headNow(o.resource, o.ID())
	if err == nil && isThere {
		err = r.refuseOwned(now)
	}
	if err != nil {
		return cluster.Applied{}, err
	}
	return r.cluster.Apply(r.requests, o.resource, draft, how)
}

// yield takes those fields out of a draft that are left to others, and says whether there
// were any.
func (r *run) yield(o *object, draft *unstructured.Unstructured, lost []ownership.Loss, how cluster.How) (hasYielded bool, err error) {
	isScaled := r.scaling.has(o.ID())
	for _, loss := range lost {
		switch {
		case ownership.IsShared(draft, loss):
			if err := r.share(o, draft, how); err != nil {
				return false, err
			}
			hasYielded = true
		case ownership.Yields(draft, loss, isScaled) && fields.Remove(draft.Object, "."+loss.Field):
			hasYielded = true
		}
	}
	return hasYielded, nil
}

// share adds to a list that others add to, too, and takes it out of a draft. A dry run adds
// nothing.
func (r *run) share(o *object, draft *unstructured.Unstructured, how cluster.How) error {
	missing, err := ownership.Unshare(r.requests, r.cluster, o.resource, draft)
	if err != nil || len(missing) == 0 {
		return err
	}
	o.added = missing
	if how&cluster.Dry != 0 {
		return nil
	}
	return ownership.Share(r.requests, r.cluster, o.resource, draft, missing)
}

// action says what an apply has done that was begun at a time, by the server's clock.
func (r *run) action(o *object, applied cluster.Applied, after inventory.Head, began time.Time) Action {
	before := o.head
	switch {
	case applied.Created && o.isThere: // when the run began
		return Recreated
	case applied.Created || o.isMade:
		return Created
	}
	if !o.isThere || before.UID != after.UID || len(o.added) > 0 {
		return Configured
	}
	if before.ResourceVersion == after.ResourceVersion {
		return Unchanged
	}
	// Somebody has written since the look: we, or another one its status, for example. An
	// apply that changes anything renews our entry, to the second: where the entry was that
	// young already, only the generation and the metadata may tell.
	if !before.Entry.Same(after.Entry) {
		return Configured
	}
	isSame := after.Generation != 0 && before.Generation == after.Generation && before.Says(o.Object()) && r.countsChanges(o.resource)
	if isSame || began.Sub(after.Entry.Since) > entryDoubt {
		return Unchanged
	}
	return Configured
}

// entryDoubt is how old an entry must be to tell whether it was renewed: it has whole
// seconds, and what we know of the server's clock may be two seconds off.
const entryDoubt = 4 * time.Second
