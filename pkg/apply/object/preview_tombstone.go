package object

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/tombstone"
)

// tombstone says what would come of the object of a tombstone.
func (p *Previewer) tombstone(m *payload.Manifest) (Change, error) {
	f, err := p.gatherDeletion(m)
	if err != nil {
		return Change{}, err
	}
	switch what := decideDeletion(f); what {
	case nothingThere, noteGone:
		return Change{Action: Absent}, nil
	case askLater:
		return Change{Action: NotChecked, Message: f.seen.Describe(p.cluster.Now())}, nil
	case refuseDeletion:
		return Change{}, ownedByOnly(f.owner)
	case awaitGone:
		return Change{Action: Pending, UID: f.seen.UID, Message: f.seen.Describe(p.cluster.Now())}, nil
	case deleteNow:
		return p.tryDelete(m.ID(), f.seen)
	default:
		return left(what, f), nil
	}
}

// tryDelete asks the server whether an object may be deleted. Of a server that is not its own
// nothing is asked: who knows whether it deletes nothing then.
func (p *Previewer) tryDelete(id kinds.ID, seen tombstone.Observation) (Change, error) {
	change := Change{Action: Deleted, UID: seen.UID}
	resource, err := p.cluster.FindKind(p.requests, id.GroupKind())
	if err != nil {
		return Change{}, err
	}
	if kinds.ScopeOf(id.GroupKind()) == kinds.Unknown && !p.isCustom(resource) {
		return change, nil
	}
	head, err := p.cluster.Head(p.requests, resource, id.Namespace, id.Name)
	switch {
	case apierrors.IsNotFound(err):
		return Change{Action: Absent}, nil
	case err != nil:
		return Change{}, err
	}
	if len(head.Finalizers) > 0 {
		change.Message = "it is terminating then, until it is let go by " + strings.Join(head.Finalizers, ", ")
	}
	err = p.cluster.TryDelete(p.requests, resource, id.Namespace, id.Name, seen.UID)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // gone, or another one, since
		return change, nil
	case err != nil && says(noDryRun)(err):
		return Change{Action: NotChecked, UID: seen.UID, Message: webhookWithoutDryRun}, nil
	}
	return change, err
}
