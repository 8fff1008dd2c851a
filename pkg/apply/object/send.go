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
		o.mutated = mutatedFields(applied.Object, o.sent)
		next.warnOfAdmission()
		return applied, nil
	}
}

// body returns the draft, bound to the version of the object that was read: the delayed request of a process that slept
// must not overwrite another release.
func (a *attempt) body() *unstructured.Unstructured {
	if a.isBound() {
		return cluster.AtVersion(a.sent, a.head.UID, a.head.ResourceVersion)
	}
	return a.sent
}

func (a *attempt) isBound() bool {
	return a.exists && a.head.ResourceVersion != "" && !a.isUnbound && !a.isDryRun()
}

func (a *attempt) isDryRun() bool { return a.how&cluster.DryRun != 0 }

// correct changes an attempt, or the live object, so that the next try may not be refused for the same reason. It
// returns the refusal if it can't, or why it could not.
func (a *attempt) correct(refused error) error {
	conflicts, unknown := ownership.Conflicts(refused), unknownFields(refused)
	switch {
	case len(conflicts) > 0:
		return a.overrule(a.ofOthers(conflicts))
	case apierrors.IsConflict(refused) && a.isBound():
		return a.unbind()
	case len(unknown) > 0 && !a.keepsUnknown && !a.applier.served.isNew(newFor, a.resource.Group):
		return a.dropUnknown(unknown, refused)
	case apierrors.IsInvalid(refused) && a.exists && !a.hasSearched:
		return a.removeLeftovers(refused)
	default:
		return refused
	}
}

// unbind makes the next try independent of the version of the object, which was written since it was read, if it is
// still this release's.
func (a *attempt) unbind() error {
	now, exists, err := a.applier.metadata.get(a.resource, a.ID())
	if err == nil && exists {
		err = refuseOwned(now, a.applier.options.Release)
	}
	a.isUnbound = true
	return err
}

// overrule removes the fields from the draft that are left to other managers. If it has none, the next try overwrites
// all.
func (a *attempt) overrule(lost []ownership.Conflict) error {
	isScaled, hasYielded := a.applier.scaling.has(a.ID()), false
	for _, loss := range lost {
		switch {
		case ownership.IsShared(a.sent, loss):
			if err := a.share(); err != nil {
				return err
			}
			hasYielded = true
		case ownership.Yields(a.sent, loss, isScaled) && fields.Remove(a.sent.Object, "."+loss.Field):
			hasYielded = true
		}
	}
	if !hasYielded {
		a.how |= cluster.Force
		a.taken = lost
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
func (a *attempt) share() error {
	missing, err := ownership.Unshare(a.applier.requestCtx, a.applier.cluster, a.resource, a.sent)
	if err != nil || len(missing) == 0 {
		return err
	}
	a.added = missing
	if a.isDryRun() {
		return nil
	}
	return ownership.Share(a.applier.requestCtx, a.applier.cluster, a.resource, a.sent, missing)
}

// dropUnknown removes the fields from a draft that the server does not know, if the options allow it.
func (a *attempt) dropUnknown(unknown []string, refused error) error {
	if !a.applier.options.DropUnknownFields {
		return refusal{ResourceInvalid, "unknown field " + strings.Join(a.allUnknown(unknown), ", ") +
			": correct or remove it, or drop unknown fields" + a.applier.options.DropHint}
	}
	if !removeFields(a.sent, unknown) {
		return refused
	}
	a.isPartial = true
	for _, path := range unknown {
		a.applier.handler.OnWarnings(a.Manifest, []string{"unknown field " + path + ": dropped"})
	}
	return nil
}

// allUnknown adds the unknown fields that the server reports only after the first ones are removed, since it does not
// look below a mapping with unknown fields.
func (a *attempt) allUnknown(unknown []string) []string {
	all, rest := slices.Clone(unknown), a.sent.DeepCopy()
	for len(unknown) > 0 && removeFields(rest, unknown) {
		_, err := a.applier.cluster.Apply(a.applier.requestCtx, a.resource, rest, cluster.Force|cluster.DryRun)
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
