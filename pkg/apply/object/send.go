package object

import (
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/fields"
)

// An attempt sends the draft of an object, corrected after earlier refusals of the server: without unknown fields, if
// they may be left out, without fields that are left to other managers, and after fields of the live object that
// exclude others were removed.
type attempt struct {
	*liveObject
	applier *Applier
	how     cluster.ApplyMode
	// the request is not bound to the version that was read: the object was written since, and is still this release's
	isUnbound   bool
	hasSearched bool                 // fields of the live object that exclude others were searched
	taken       []ownership.Conflict // fields of other managers that are overwritten
	answer      *cluster.WriteResult // response to a correction that was a dry run itself
}

// sendDraft sends the draft of an object.
func (a *Applier) sendDraft(o *liveObject, how cluster.ApplyMode) (cluster.WriteResult, error) {
	draft, err := a.draft(o)
	if err != nil {
		return cluster.WriteResult{}, err
	}
	return a.send(o, draft, how)
}

// send applies a draft, and tries again as long as the refusal shows how to correct the draft or the live object.
func (a *Applier) send(o *liveObject, draft *unstructured.Unstructured,
	how cluster.ApplyMode) (cluster.WriteResult, error) {
	o.sent, o.lost, o.removed = draft, nil, nil
	next := &attempt{applier: a, liveObject: o, how: how}
	for {
		applied, err := a.cluster.Apply(a.requestCtx, o.resource, next.body(), next.how)
		if err != nil {
			err = next.correct(err)
		}
		switch {
		case err != nil:
			a.handler.OnWarnings(o.Manifest, maskWarnings(o.Manifest, applied.Warnings))
			return applied, err
		case next.answer != nil:
			applied = *next.answer
		case applied.Object == nil: // it was refused, and is corrected
			continue
		}
		o.lost = slices.Concat(maskConflicts(o.Manifest, next.taken), o.removed, o.foreign)
		a.handler.OnWarnings(o.Manifest, maskWarnings(o.Manifest, applied.Warnings))
		next.warnOfAdmission(applied.Object)
		return applied, nil
	}
}

// body returns the draft, bound to the version of the object that was read: the delayed request of a process that slept
// must not overwrite another release.
func (n *attempt) body() *unstructured.Unstructured {
	if n.isBound() {
		return cluster.AtVersion(n.sent, n.head.UID, n.head.ResourceVersion)
	}
	return n.sent
}

func (n *attempt) isBound() bool {
	return n.exists && n.head.ResourceVersion != "" && !n.isUnbound && !n.isDryRun()
}

func (n *attempt) isDryRun() bool { return n.how&cluster.DryRun != 0 }

// correct changes an attempt, or the live object, so that the next try may not be refused for the same reason. It
// returns the refusal if it can't, or why it could not.
func (n *attempt) correct(refused error) error {
	conflicts, unknown := ownership.Conflicts(refused), unknownFields(refused)
	switch {
	case len(conflicts) > 0:
		return n.overrule(n.ofOthers(conflicts))
	case apierrors.IsConflict(refused) && n.isBound():
		return n.unbind()
	case len(unknown) > 0 && !n.keepsUnknown && !n.applier.served.isNew(newFor, n.resource.Group):
		return n.dropUnknown(unknown, refused)
	case apierrors.IsInvalid(refused) && n.exists && !n.hasSearched:
		return n.removeLeftovers(refused)
	default:
		return refused
	}
}

// unbind makes the next try independent of the version of the object, which was written since it was read, if it is
// still this release's.
func (n *attempt) unbind() error {
	now, exists, err := n.applier.metadata.get(n.resource, n.ID())
	if err == nil && exists {
		err = refuseOwned(now, n.applier.options.Release)
	}
	n.isUnbound = true
	return err
}

// overrule removes the fields from the draft that are left to other managers. If it has none, the next try overwrites
// all.
func (n *attempt) overrule(lost []ownership.Conflict) error {
	isScaled, hasYielded := n.applier.scaling.has(n.ID()), false
	for _, loss := range lost {
		switch {
		case ownership.IsShared(n.sent, loss):
			if err := n.share(); err != nil {
				return err
			}
			hasYielded = true
		case ownership.Yields(n.sent, loss, isScaled) && fields.Remove(n.sent.Object, "."+loss.Field):
			hasYielded = true
		}
	}
	if !hasYielded {
		n.how |= cluster.Force
		n.taken = lost
	}
	return nil
}

// ofOthers returns the conflicts that count as fields taken from another manager.
func (o *liveObject) ofOthers(lost []ownership.Conflict) []ownership.Conflict {
	return slices.DeleteFunc(lost, func(loss ownership.Conflict) bool {
		return slices.Contains(o.adopts, loss.Manager) || loss.Manager == deploymenthook.FieldManager
	})
}

// share adds items to a list that other managers add to as well, and removes the list from the draft. A dry run adds
// nothing.
func (n *attempt) share() error {
	missing, err := ownership.Unshare(n.applier.requestCtx, n.applier.cluster, n.resource, n.sent)
	if err != nil || len(missing) == 0 {
		return err
	}
	n.added = missing
	if n.isDryRun() {
		return nil
	}
	return ownership.Share(n.applier.requestCtx, n.applier.cluster, n.resource, n.sent, missing)
}

// dropUnknown removes the fields from a draft that the server does not know, if the options allow it.
func (n *attempt) dropUnknown(unknown []string, refused error) error {
	if !n.applier.options.DropUnknownFields {
		return refusal{ResourceInvalid, "unknown field " + strings.Join(n.allUnknown(unknown), ", ") +
			": correct or remove it, or drop unknown fields" + n.applier.options.DropHint}
	}
	if !removeFields(n.sent, unknown) {
		return refused
	}
	n.isPartial = true
	for _, path := range unknown {
		n.applier.handler.OnWarnings(n.Manifest, []string{"unknown field " + path + ": dropped"})
	}
	return nil
}

// allUnknown adds the unknown fields that the server reports only after the first ones are removed, since it does not
// look below a mapping with unknown fields.
func (n *attempt) allUnknown(unknown []string) []string {
	all, rest := slices.Clone(unknown), n.sent.DeepCopy()
	for len(unknown) > 0 && removeFields(rest, unknown) {
		_, err := n.applier.cluster.Apply(n.applier.requestCtx, n.resource, rest, cluster.Force|cluster.DryRun)
		unknown = unknownFields(err)
		all = append(all, unknown...)
	}
	slices.Sort(all)
	return all
}

// removeFields removes fields from an object, and reports whether it has found any.
func removeFields(object *unstructured.Unstructured, paths []string) bool {
	removed := false
	for _, path := range paths {
		removed = fields.Remove(object.Object, path) || removed
	}
	return removed
}
