package apply

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/ownership"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/ready"
	"github.com/runlevel/runlevel/pkg/record"
)

// A Mender applies single objects of a payload again, for as long as somebody keeps it in
// place: it is what a run does to an object, without a run around it. It waits for nothing and
// tries nothing again. It may be used by many at once, but not for the same object.
type Mender struct{ run *run }

// NewMender is for a payload that a run applies or has applied, with the same options: they share the
// fingerprints.
func NewMender(ctx context.Context, c *cluster.Cluster, release *payload.Payload, options Options) *Mender {
	options.Tell = nil
	options = options.withDefaults()
	r := newRun(c, &inventory.Inventory{}, options)
	r.isMending = true
	r.requests, r.cut = record.UnderLock(ctx)
	context.AfterFunc(ctx, r.cutLate)
	r.readiness = ignored{}
	r.fingerprints.KeepNewest()
	r.definitions = newDefinitions(r.requests, c, r.before)
	r.scaling.manifests = release.Manifests
	r.findScaled()
	return &Mender{r}
}

// Learn looks at what all objects of a kind have in common, so that judging one asks nobody.
func (m *Mender) Learn(resource cluster.Resource) {
	m.run.definitions.versionOf(resource)
	m.run.isCustom(resource)
}

// Close ends the requests that are on their way.
func (m *Mender) Close() { m.run.close() }

// Place says where the object of a manifest is.
func (m *Mender) Place(manifest *payload.Manifest) (cluster.Resource, error) {
	return m.run.place(manifest)
}

// IsUntouched says whether nobody can have changed what is ours of an object since it was
// applied.
func (m *Mender) IsUntouched(manifest *payload.Manifest, head inventory.Head) bool {
	r := m.run
	if head.Release != r.options.Release || !head.IsApplied || head.Terminating {
		return false
	}
	text, isKnown := r.text(manifest, head.Resource)
	if !isKnown {
		return false
	}
	countsChanges := func() bool { return r.countsChanges(head.Resource) }
	return isCreateOnly(manifest) || r.fingerprints.Move(r.fingerprints, head, text, countsChanges)
}

// Redefine takes in a definition as it is now, and says whether it is another than before: then
// nothing is known of its objects. That it is to go, changes nothing of them yet.
func (m *Mender) Redefine(definition inventory.Head) bool {
	return !definition.Terminating && definition.ID.GroupKind() == kinds.CustomResourceDefinition && m.run.definitions.note(definition.ID, definition.Metadata())
}

// Mended is what came of an object.
type Mended struct {
	Change
	Before, Now inventory.Head // as it was, and as it is; empty if it was not there, or is not
	IsLooked    bool           // else nobody could say how it was
}

// Mend makes an object again what its manifest says. How it is, it asks for if that is not
// known. The failure names the object, and says nothing that is secret; how the object was, is
// said with it.
func (m *Mender) Mend(manifest *payload.Manifest, known *inventory.Head) (Mended, error) {
	r := m.run
	o, isLooked := &object{Manifest: manifest}, false
	change, err := func() (change Change, err error) {
		if o.resource, err = r.place(manifest); err != nil {
			return change, err
		}
		if known != nil {
			o.head, o.isThere = *known, true
		} else if o.head, o.isThere, err = r.headNow(o.resource, manifest.ID()); err != nil {
			return change, err
		}
		isLooked = true
		return r.putKnown(o)
	}()
	if errors.Is(err, cluster.ErrNotServed) {
		r.cluster.Refresh() // it may be, when this is tried again
	}
	r.mu.Lock()
	clear(r.warnings) // which nobody reads
	r.mu.Unlock()
	if err != nil {
		return Mended{Before: o.head, IsLooked: isLooked}, failureOf(manifest, err)
	}
	change.Manifest = manifest
	mended := Mended{Change: change, Before: o.head, Now: o.head, IsLooked: true}
	if o.now != nil {
		mended.Now = inventory.HeadOf(o.resource, o.now)
		mended.Lost = r.taken(o, mended)
	}
	isSame := mended.Before.UID == mended.Now.UID && mended.Before.Entry.Same(mended.Now.Entry)
	if mended.Action == Configured && isSame && len(mended.Lost)+len(o.added) == 0 {
		mended.Action = Unchanged // others have written it meanwhile, and nothing of ours
	}
	return mended, nil
}

// IsUnfinished says whether a manifest is of a Job that is not known to have run to its end.
func (m *Mender) IsUnfinished(manifest *payload.Manifest) bool {
	return manifest.GroupVersionKind().GroupKind() == kinds.Job && !m.run.options.Journal.hasFinished(manifest)
}

// NoteFinished notes that a Job has run to its end, if it has.
func (m *Mender) NoteFinished(job *payload.Manifest) error {
	r := m.run
	resource, err := r.place(job)
	if err != nil {
		return err
	}
	object, err := r.cluster.In(resource, job.ID().Namespace).Get(r.requests, job.ID().Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case !ready.HasSucceeded(object) || object.GetLabels()[inventory.Label] != r.options.Release:
		return nil
	}
	return r.rememberJob(job, object.GetUID())
}

// taken are the fields that others had set otherwise, or, if the server had no quarrel with
// that, those that were not ours any more.
func (r *run) taken(o *object, mended Mended) []ownership.Loss {
	before := mended.Before.Metadata()
	if len(mended.Lost) > 0 || before == nil || mended.Before.UID != mended.Now.UID {
		return mended.Lost
	}
	return maskedLosses(o.Manifest, ownership.Taken(before.GetManagedFields(), mended.Now.Metadata().GetManagedFields()))
}
