package object

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Previewer finds out what an Applier would do: it decides as the Applier does, and sends dry runs instead of writes.
// An object that depends on missing objects is reported as not checked, or validated against the definition in the
// payload itself.
type Previewer struct {
	*Applier
	payload *payload.Payload
	asker   diagnosis.Diagnoser
}

// NewPreviewer returns a Previewer for the manifests of a payload. The Applier then writes nothing.
func NewPreviewer(a *Applier, release *payload.Payload) *Previewer {
	p := &Previewer{Applier: a, payload: release, asker: diagnosis.Diagnoser{Cluster: a.cluster}}
	a.previewer, a.coming, a.findsOthers = p, p.comingDefinitions(), true
	return p
}

// Preview returns the change that an apply of a manifest would make.
func (p *Previewer) Preview(m *payload.Manifest) (Change, error) {
	for _, definition := range p.coming {
		if definition.manifest == m {
			return definition.preview() // custom resources may have previewed it before
		}
	}
	return p.preview(m)
}

// preview previews a manifest, again if the server is overloaded, or does not answer.
func (p *Previewer) preview(m *payload.Manifest) (Change, error) {
	const tries = 4
	pause := Backoff()
	for attempt := 1; ; attempt++ {
		change, err := p.previewOnce(m)
		if err == nil || attempt == tries || !cluster.IsNoAnswer(err) ||
			!Pause(p.requestCtx, max(pause.Step(), WantedPause(err))) {
			return change, err
		}
	}
}

func (p *Previewer) previewOnce(m *payload.Manifest) (Change, error) {
	if m.IsTombstone() {
		return p.tombstone(m)
	}
	o, err := p.look(m)
	switch {
	case errors.Is(err, cluster.ErrNotServed):
		return p.withoutKind(m, err)
	case errors.As(err, new(*cluster.UnknownKind)):
		return Change{Action: NotChecked, Message: p.explain(m, err)}, nil
	case err != nil:
		return Change{}, err
	}
	return p.reconcile(o)
}

// tombstone returns the change of the object of a tombstone.
func (p *Previewer) tombstone(m *payload.Manifest) (Change, error) {
	f := p.deleter.gatherFacts(m)
	switch what := decideDeletion(f); what {
	case alreadyAbsent, noteDeleted:
		return Change{Action: Absent}, nil
	case leaveUnknown, lookAgain:
		return Change{Action: NotChecked, Message: f.seen.Describe(p.cluster.Now())}, nil
	case refuseDeletion:
		return Change{}, ownedByOnly(f.owner)
	case awaitDeletion:
		return Change{Action: Pending, UID: f.seen.UID, Message: f.seen.Describe(p.cluster.Now())}, nil
	case deleteNow:
		return p.tryDelete(m.ID(), f.seen)
	default:
		return leftChange(what, f), nil
	}
}

// tryDelete tries the delete of an object by a dry run. An aggregated API is not tried, since it might ignore the dry
// run and delete the object.
func (p *Previewer) tryDelete(id kinds.ID, seen tombstone.Observation) (Change, error) {
	change := Change{Action: Deleted, UID: seen.UID}
	resource, err := p.cluster.FindKind(p.requestCtx, id.GroupKind())
	if err != nil {
		return Change{}, err
	}
	if kinds.ScopeOf(id.GroupKind()) == kinds.Unknown && !p.served.isCustom(resource) {
		return change, nil
	}
	head, err := p.cluster.GetMetadata(p.requestCtx, resource, id.Namespace, id.Name)
	switch {
	case apierrors.IsNotFound(err):
		return Change{Action: Absent}, nil
	case err != nil:
		return Change{}, err
	}
	if len(head.Finalizers) > 0 {
		change.Message = "it stays terminating until these finalizers are removed: " +
			strings.Join(head.Finalizers, ", ")
	}
	err = p.cluster.DryRunDelete(p.requestCtx, resource, id.Namespace, id.Name, seen.UID)
	switch {
	// the object was deleted meanwhile, or another one has its name
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return change, nil
	case err != nil && hasMessage(noDryRun)(err):
		return Change{Action: NotChecked, UID: seen.UID, Message: webhookWithoutDryRun}, nil
	}
	return change, err
}
