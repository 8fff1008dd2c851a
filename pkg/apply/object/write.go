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
	"github.com/runlevel/runlevel/internal/text/reason"
)

// A writer sends drafts of objects to the server: without unknown fields, if Options.DropUnknownFields allows that,
// and without fields that are left to other managers.
type writer struct{ *knowledge }

// apply applies a draft, without unknown fields if that is allowed.
func (w writer) apply(o *liveObject, draft *unstructured.Unstructured, how cluster.ApplyMode) (cluster.WriteResult, error) {
	applied, err := w.write(o, draft, how)
	w.handler.Warned(o.Manifest, maskedWarnings(o.Manifest, applied.Warnings))
	if err == nil {
		w.warnOfAdmission(o, draft, applied.Object)
	}
	unknown := unknownFields(err)
	if len(unknown) == 0 || w.hasWritten(o.resource.Group) {
		return applied, err
	}
	if !w.options.DropUnknownFields {
		return applied, &reason.Error{Option: reason.DropUnknownFields, Err: refusal{ResourceInvalid, "the cluster knows no field " +
			strings.Join(w.allUnknown(o.resource, draft, unknown), ", ") + " of it: correct or remove it, or " + string(reason.DropUnknownFields)}}
	}
	if !removeFields(draft, unknown) {
		return applied, err
	}
	o.isPartial = true
	for _, path := range unknown {
		w.handler.Warned(o.Manifest, []string{"the cluster knows no field " + path + ": left out"})
	}
	return w.apply(o, draft, how)
}

// allUnknown adds the unknown fields that the server reports only after the first ones are removed,
// since it does not look below a mapping with unknown fields.
func (w writer) allUnknown(resource cluster.Resource, object *unstructured.Unstructured, unknown []string) []string {
	all, rest := slices.Clone(unknown), object.DeepCopy()
	for len(unknown) > 0 && removeFields(rest, unknown) {
		_, err := w.cluster.Apply(w.requests, resource, rest, cluster.Force|cluster.DryRun)
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

// write applies a draft. It overwrites and reports fields that other managers have set to other values, but leaves some
// fields to them.
func (w writer) write(o *liveObject, draft *unstructured.Unstructured, how cluster.ApplyMode) (cluster.WriteResult, error) {
	o.sent = draft
	applied, err := w.applyOver(o, draft, how)
	lost := ownership.Conflicts(err)
	if len(lost) == 0 {
		o.lost = o.removed
		return applied, err
	}
	lost = o.ofOthers(lost)
	hasYielded, err := w.yield(o, draft, lost, how)
	if err != nil {
		return applied, err
	}
	if hasYielded {
		return w.write(o, draft, how)
	}
	if applied, err = w.applyOver(o, draft, how|cluster.Force); err == nil {
		o.lost = append(maskedLosses(o.Manifest, lost), o.removed...)
	}
	return applied, err
}

// ofOthers returns the conflicts that count as fields taken from another manager.
func (o *liveObject) ofOthers(lost []ownership.Conflict) []ownership.Conflict {
	return slices.DeleteFunc(lost, func(loss ownership.Conflict) bool {
		return slices.Contains(o.adopts, loss.Manager) || loss.Manager == deploymenthook.FieldManager
	})
}

// applySeen applies a draft to the version of the object that was read. If the object has been written
// since, its owner is checked again, so that the delayed request of a process that slept does not
// overwrite another release.
func (w writer) applySeen(o *liveObject, draft *unstructured.Unstructured, how cluster.ApplyMode) (cluster.WriteResult, error) {
	if !o.exists || o.head.ResourceVersion == "" || how&cluster.DryRun != 0 {
		return w.cluster.Apply(w.requests, o.resource, draft, how)
	}
	applied, err := w.cluster.Apply(w.requests, o.resource, cluster.AtVersion(draft, o.head.UID, o.head.ResourceVersion), how)
	if !apierrors.IsConflict(err) || len(ownership.Conflicts(err)) > 0 {
		return applied, err
	}
	now, exists, err := w.headNow(o.resource, o.ID())
	if err == nil && exists {
		err = w.refuseOwned(now)
	}
	if err != nil {
		return cluster.WriteResult{}, err
	}
	return w.cluster.Apply(w.requests, o.resource, draft, how)
}

// yield removes the fields from a draft that are left to other managers, and reports whether the draft
// had any.
func (w writer) yield(o *liveObject, draft *unstructured.Unstructured, lost []ownership.Conflict, how cluster.ApplyMode) (hasYielded bool, err error) {
	isScaled := w.scaling.has(o.ID())
	for _, loss := range lost {
		switch {
		case ownership.IsShared(draft, loss):
			if err := w.share(o, draft, how); err != nil {
				return false, err
			}
			hasYielded = true
		case ownership.Yields(draft, loss, isScaled) && fields.Remove(draft.Object, "."+loss.Field):
			hasYielded = true
		}
	}
	return hasYielded, nil
}

// share adds items to a list that other managers add to as well, and removes the list from the draft.
// A dry run adds nothing.
func (w writer) share(o *liveObject, draft *unstructured.Unstructured, how cluster.ApplyMode) error {
	missing, err := ownership.Unshare(w.requests, w.cluster, o.resource, draft)
	if err != nil || len(missing) == 0 {
		return err
	}
	o.added = missing
	if how&cluster.DryRun != 0 {
		return nil
	}
	return ownership.Share(w.requests, w.cluster, o.resource, draft, missing)
}
