package apply

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/tombstone"
)

// tombstone says what would come of the object of a tombstone.
func (p *preview) tombstone(m *payload.Manifest) (Change, error) {
	id := m.ID()
	asked, _ := p.options.Journal.asked(id)
	seen := tombstone.Observe(p.requests, p.cluster, id, asked.UID)
	switch seen.State {
	case tombstone.Absent:
		return Change{Action: Absent}, nil
	case tombstone.Unknown:
		return Change{Action: NotChecked, Message: seen.Describe(p.cluster.Now())}, nil
	}
	if err := p.refuseOthers(id); err != nil {
		return Change{}, err
	}
	isBack := seen.State == tombstone.Reappeared || asked.IsBack || p.options.Journal.HasDeleted(id)
	change := Change{UID: seen.UID}
	switch {
	case seen.State == tombstone.Terminating:
		change.Action, change.Message = Pending, seen.Describe(p.cluster.Now())
	case p.options.Mode == graph.Update:
		return p.tryDelete(id, seen)
	case isBack:
		change.Action, change.Message = Reappeared, isBackUntilNext(seen)
	case asked.Sent:
		change.Action, change.Message = Pending, didNotReach
	default:
		change.Action, change.Message = Left, leaves[p.options.Mode]
	}
	return change, nil
}

// tryDelete asks the server whether an object may be deleted. Of a server that is not its own
// nothing is asked: who knows whether it deletes nothing then.
func (p *preview) tryDelete(id kinds.ID, seen tombstone.Observation) (Change, error) {
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
