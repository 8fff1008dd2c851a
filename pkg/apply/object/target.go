package object

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
type target struct {
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
func (o *target) version() string {
	if o.now != nil {
		return o.now.GetResourceVersion()
	}
	return o.head.ResourceVersion
}

// text is what an object is applied from. Its definition is part of that: what the server
// says of a custom resource changes with it, and leaves no trace in the object. Where the
// definition is not known, neither is the text.
func (k *knowledge) text(m *payload.Manifest, resource cluster.Resource) (text inventory.Text, isKnown bool) {
	definition, isKnown := k.definitions.versionOf(resource)
	text = inventory.Text{Sum: m.Sum(), Metadata: m.Object(), Note: definition}
	if k.scaling.has(m.ID()) {
		text.Note += " scaled"
	}
	return text, isKnown
}

// isUntouched says whether nobody can have changed what is ours of an object since it was
// applied from the same manifest. One that is only ever made needs to be there, no more.
func (k *knowledge) isUntouched(m *payload.Manifest, head inventory.Head, isThere bool) bool {
	if !isThere || !k.trusts(head) {
		return false
	}
	text, isKnown := k.text(m, head.Resource)
	isUntouched := isKnown && k.fingerprints.Move(k.known, head, text, func() bool {
		return k.countsChanges(head.Resource)
	})
	if isUntouched {
		k.fingerprints.Leave(head)
	}
	return isUntouched
}

// wasReady says whether an object was ready, and nobody has written it since.
func (k *knowledge) wasReady(m *payload.Manifest, head inventory.Head) bool {
	text, isKnown := k.text(m, head.Resource)
	return isKnown && k.fingerprints.MoveReady(k.known, head.Metadata(), text, k.standard())
}

// standard is what readiness depends on, beside the object: by upstream's, some of it does
// not matter in an install.
func (k *knowledge) standard() string {
	return fmt.Sprint(k.options.Standard, k.options.Standard == ready.Upstream && k.options.Mode == graph.Install)
}

// countsChanges says whether the generation of a resource's objects tells of each change of
// their bodies.
func (k *knowledge) countsChanges(resource cluster.Resource) bool {
	return kinds.CountsChanges(resource.GroupKind()) || k.isCustom(resource)
}

// trusts says whether what was seen of an object before says how it is.
func (k *knowledge) trusts(head inventory.Head) bool {
	return !k.options.Full && k.before.Age() < k.options.LookCounts && head.Release == k.options.Release && head.IsApplied && !head.Terminating
}

// isCustom says whether the objects of a resource are custom resources. Those of other
// servers may do as they like.
func (k *knowledge) isCustom(resource cluster.Resource) bool {
	isCustom, err := k.cluster.IsCustom(k.requests, resource)
	return err == nil && isCustom
}

// set applies an object.
func (a *Applier) set(o *target) (Change, error) {
	began := a.cluster.Now()
	applied, err := a.applyFirst(o)
	if fixed := immutableFields(err); len(fixed) > 0 {
		return a.recreate(o, fixed)
	}
	if err != nil {
		return Change{}, err
	}
	if applied.Object.GetDeletionTimestamp() != nil {
		return Change{}, a.leaving(o.Manifest, applied.Object.GetUID())
	}
	if applied.Created {
		a.makeKnown(o, applied.Object)
	}
	after := inventory.HeadOf(o.resource, applied.Object)
	return a.applied(o, applied, after, a.action(o, applied, after, began)), nil
}

// makeKnown lets the server take notice of a Namespace that was made, before anything comes into it.
func (a *Applier) makeKnown(o *target, made *unstructured.Unstructured) {
	if o.resource.GroupKind() == kinds.Namespace {
		a.cluster.Settle(a.requests, o.resource, made)
	}
}

// applied takes in what came of an object.
func (a *Applier) applied(o *target, applied cluster.Applied, head inventory.Head, action Action) Change {
	a.settled(o, applied.Object)
	a.definitions.note(o.ID(), applied.Object)
	text, isKnown := a.text(o.Manifest, o.resource)
	a.fingerprints.Leave(head)
	isAsSent := !o.isLean && head.Says(o.Object()) && obeys(applied.Object, o.sent)
	if isKnown && (isAsSent || a.isRepairing) {
		a.fingerprints.Add(head, text)
	}
	return Change{Action: action, UID: applied.Object.GetUID(), Lost: o.lost}
}

// applyFirst applies an object. One that is not known of is made; if it is there all the
// same, somebody else has made it, and their tool's fields are adopted first: a field that
// they have set, and that we don't, is to go.
func (a *Applier) applyFirst(o *target) (cluster.Applied, error) {
	if !o.isThere {
		applied, refused := a.apply(o, cluster.OnlyNew|cluster.Forced)
		if !apierrors.IsConflict(refused) && !apierrors.IsAlreadyExists(refused) {
			return applied, refused
		}
		var err error
		if o.head, o.isThere, err = a.headNow(o.resource, o.ID()); err != nil {
			return cluster.Applied{}, err
		}
		if !o.isThere { // it is gone, or somebody wrote what is counted with it, such as a quota
			return cluster.Applied{}, refused
		}
		if err := a.refuseOwned(o.head); err != nil {
			return cluster.Applied{}, err
		}
		o.isMade = o.head.IsOf(a.options.Release) && a.before.Covers(o.ID())
	}
	if err := a.adopt(o); err != nil {
		return cluster.Applied{}, err
	}
	return a.apply(o, cluster.Plainly)
}

// adopt makes the fields of other tools ours, before we apply an object for the first time.
func (a *Applier) adopt(o *target) error {
	if !o.head.IsNew() || o.head.Terminating {
		return nil
	}
	now, adopted, err := ownership.Adopt(a.requests, a.cluster, o.resource, o.head.Metadata(), a.options.AdoptFrom)
	if apierrors.IsNotFound(err) { // somebody has just deleted it, and the apply makes it
		o.head, o.isThere = inventory.Head{}, false
		return nil
	}
	if err != nil {
		return err
	}
	o.head = inventory.HeadOf(o.resource, now)
	if len(adopted) > 0 {
		a.handler.Adopted(o.Manifest, adopted)
	}
	return nil
}

// apply applies an object.
func (a *Applier) apply(o *target, how cluster.How) (cluster.Applied, error) {
	draft, err := a.draft(o)
	if err != nil {
		return cluster.Applied{}, err
	}
	return a.applyDraft(o, draft, how)
}

// draft is what is said of an object.
func (a *Applier) draft(o *target) (*unstructured.Unstructured, error) {
	draft := ownership.Draft(o.Object(), inventory.Label, a.options.Release)
	var live metav1.Object
	if o.isThere {
		live = o.head.Metadata()
	}
	isScaled, err := a.isScaled(o.Manifest, live)
	if err != nil || !isScaled {
		return draft, err
	}
	return draft, a.scale(o, draft)
}

// write applies a draft. What others have set otherwise is set anew, and said; but some
// fields are left to them.
func (a *Applier) write(o *target, draft *unstructured.Unstructured, how cluster.How) (cluster.Applied, error) {
	o.sent = draft
	applied, err := a.applySeen(o, draft, how)
	lost := ownership.Losses(err)
	if len(lost) == 0 {
		return applied, err
	}
	lost = slices.DeleteFunc(lost, func(loss ownership.Loss) bool { return slices.Contains(o.adopts, loss.Manager) })
	hasYielded, err := a.yield(o, draft, lost, how)
	if err != nil {
		return applied, err
	}
	if hasYielded {
		return a.write(o, draft, how)
	}
	if applied, err = a.applySeen(o, draft, how|cluster.Forced); err == nil {
		o.lost = maskedLosses(o.Manifest, lost)
	}
	return applied, err
}

// applySeen applies a draft to the object that was seen. If that has been written since, it is looked
// at once more before it is written, so that a request which was held up in a process that slept
// changes nothing that another applier has done meanwhile.
func (a *Applier) applySeen(o *target, draft *unstructured.Unstructured, how cluster.How) (cluster.Applied, error) {
	if !o.isThere || o.head.ResourceVersion == "" || how&cluster.Dry != 0 {
		return a.cluster.Apply(a.requests, o.resource, draft, how)
	}
	applied, err := a.cluster.Apply(a.requests, o.resource, cluster.At(draft, o.head.UID, o.head.ResourceVersion), how)
	if !apierrors.IsConflict(err) || len(ownership.Losses(err)) > 0 {
		return applied, err
	}
	now, isThere, err := a.headNow(o.resource, o.ID())
	if err == nil && isThere {
		err = a.refuseOwned(now)
	}
	if err != nil {
		return cluster.Applied{}, err
	}
	return a.cluster.Apply(a.requests, o.resource, draft, how)
}

// yield takes those fields out of a draft that are left to others, and says whether there
// were any.
func (a *Applier) yield(o *target, draft *unstructured.Unstructured, lost []ownership.Loss, how cluster.How) (hasYielded bool, err error) {
	isScaled := a.scaling.has(o.ID())
	for _, loss := range lost {
		switch {
		case ownership.IsShared(draft, loss):
			if err := a.share(o, draft, how); err != nil {
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
func (a *Applier) share(o *target, draft *unstructured.Unstructured, how cluster.How) error {
	missing, err := ownership.Unshare(a.requests, a.cluster, o.resource, draft)
	if err != nil || len(missing) == 0 {
		return err
	}
	o.added = missing
	if how&cluster.Dry != 0 {
		return nil
	}
	return ownership.Share(a.requests, a.cluster, o.resource, draft, missing)
}

// action says what an apply has done that was begun at a time, by the server's clock.
func (a *Applier) action(o *target, applied cluster.Applied, after inventory.Head, began time.Time) Action {
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
	isSame := after.Generation != 0 && before.Generation == after.Generation && before.Says(o.Object()) && a.countsChanges(o.resource)
	if isSame || began.Sub(after.Entry.Since) > entryDoubt {
		return Unchanged
	}
	return Configured
}

// entryDoubt is how old an entry must be to tell whether it was renewed: it has whole
// seconds, and what we know of the server's clock may be two seconds off.
const entryDoubt = 4 * time.Second
