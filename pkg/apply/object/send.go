package object

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A sender sends drafts of objects to the server, and corrects those that it refuses: it leaves out unknown fields, if that
// is allowed, and fields that are left to other managers, and removes fields of the live object that exclude others.
type sender struct {
	requests context.Context
	cluster  *cluster.Cluster
	options  Options
	warned   func(m *payload.Manifest, warnings []string)
	heads    *heads
	served   *served
	scaling  *scaling
}

// An attempt is how the draft of an object is sent, after what the server has refused before.
type attempt struct {
	*liveObject
	draft       *unstructured.Unstructured
	how         cluster.ApplyMode
	isUnbound   bool                 // not bound to the version that was read: the object was written since, and is still this release's
	hasSearched bool                 // fields of the live object that exclude others were searched
	taken       []ownership.Conflict // fields of other managers that are overwritten
	answer      *cluster.WriteResult // of a correction that was a dry run itself
}

// send applies a draft, and tries again as long as the refusal shows how to correct the draft or the live object.
func (s *sender) send(o *liveObject, draft *unstructured.Unstructured, how cluster.ApplyMode) (cluster.WriteResult, error) {
	o.sent, o.lost, o.removed = draft, nil, nil
	next := &attempt{liveObject: o, draft: draft, how: how}
	for {
		applied, err := s.cluster.Apply(s.requests, o.resource, next.body(), next.how)
		if err != nil {
			err = s.correct(next, err)
		}
		switch {
		case err != nil:
			s.warned(o.Manifest, maskedWarnings(o.Manifest, applied.Warnings))
			return applied, err
		case next.answer != nil:
			applied = *next.answer
		case applied.Object == nil: // it was refused, and is corrected
			continue
		}
		o.lost = append(maskedLosses(o.Manifest, next.taken), o.removed...)
		s.warned(o.Manifest, maskedWarnings(o.Manifest, applied.Warnings))
		s.warnOfAdmission(o, draft, applied.Object)
		return applied, nil
	}
}

// body returns the draft, bound to the version of the object that was read: the delayed request of a process that slept
// must not overwrite another release.
func (n *attempt) body() *unstructured.Unstructured {
	if n.isBound() {
		return cluster.AtVersion(n.draft, n.head.UID, n.head.ResourceVersion)
	}
	return n.draft
}

func (n *attempt) isBound() bool {
	return n.exists && n.head.ResourceVersion != "" && !n.isUnbound && !n.isDryRun()
}

func (n *attempt) isDryRun() bool { return n.how&cluster.DryRun != 0 }

// correct changes an attempt, or the live object, so that the next try may not be refused for the same reason. It returns
// the refusal if it can't, or why it could not.
func (s *sender) correct(n *attempt, refused error) error {
	conflicts, unknown := ownership.Conflicts(refused), unknownFields(refused)
	switch {
	case len(conflicts) > 0:
		return s.overrule(n, n.ofOthers(conflicts))
	case apierrors.IsConflict(refused) && n.isBound():
		return s.unbind(n)
	case len(unknown) > 0 && !n.keepsUnknown && !s.served.isNew(newFor, n.resource.Group):
		return s.dropUnknown(n, unknown, refused)
	case apierrors.IsInvalid(refused) && n.exists && !n.hasSearched:
		return s.removeLeftovers(n, refused)
	default:
		return refused
	}
}

// unbind makes the next try independent of the version of the object, which was written since it was read, if it is still
// this release's.
func (s *sender) unbind(n *attempt) error {
	now, exists, err := s.heads.get(n.resource, n.ID())
	if err == nil && exists {
		err = refuseOwned(now, s.options.Release)
	}
	n.isUnbound = true
	return err
}

// overrule leaves fields of other managers to them, or makes the next try overwrite them.
func (s *sender) overrule(n *attempt, lost []ownership.Conflict) error {
	hasYielded, err := s.yield(n, lost)
	if err == nil && !hasYielded {
		n.how |= cluster.Force
		n.taken = lost
	}
	return err
}

// ofOthers returns the conflicts that count as fields taken from another manager.
func (o *liveObject) ofOthers(lost []ownership.Conflict) []ownership.Conflict {
	return slices.DeleteFunc(lost, func(loss ownership.Conflict) bool {
		return slices.Contains(o.adopts, loss.Manager) || loss.Manager == deploymenthook.FieldManager
	})
}

// yield removes the fields from a draft that are left to other managers, and reports whether the draft had any.
func (s *sender) yield(n *attempt, lost []ownership.Conflict) (hasYielded bool, err error) {
	isScaled := s.scaling.has(n.ID())
	for _, loss := range lost {
		switch {
		case ownership.IsShared(n.draft, loss):
			if err := s.share(n); err != nil {
				return false, err
			}
			hasYielded = true
		case ownership.Yields(n.draft, loss, isScaled) && fields.Remove(n.draft.Object, "."+loss.Field):
			hasYielded = true
		}
	}
	return hasYielded, nil
}

// share adds items to a list that other managers add to as well, and removes the list from the draft. A dry run adds
// nothing.
func (s *sender) share(n *attempt) error {
	missing, err := ownership.Unshare(s.requests, s.cluster, n.resource, n.draft)
	if err != nil || len(missing) == 0 {
		return err
	}
	n.added = missing
	if n.isDryRun() {
		return nil
	}
	return ownership.Share(s.requests, s.cluster, n.resource, n.draft, missing)
}

// dropUnknown removes the fields from a draft that the server does not know, if that is allowed.
func (s *sender) dropUnknown(n *attempt, unknown []string, refused error) error {
	if !s.options.DropUnknownFields {
		return refusal{ResourceInvalid, "the cluster knows no field " + strings.Join(s.allUnknown(n, unknown), ", ") +
			" of it: correct or remove it, or drop unknown fields" + s.options.DropHint}
	}
	if !removeFields(n.draft, unknown) {
		return refused
	}
	n.isPartial = true
	for _, path := range unknown {
		s.warned(n.Manifest, []string{"the cluster knows no field " + path + ": left out"})
	}
	return nil
}

// allUnknown adds the unknown fields that the server reports only after the first ones are removed, since it does not look
// below a mapping with unknown fields.
func (s *sender) allUnknown(n *attempt, unknown []string) []string {
	all, rest := slices.Clone(unknown), n.draft.DeepCopy()
	for len(unknown) > 0 && removeFields(rest, unknown) {
		_, err := s.cluster.Apply(s.requests, n.resource, rest, cluster.Force|cluster.DryRun)
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
