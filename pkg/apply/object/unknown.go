package object

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/fields"
)

// applyDraft applies what is said of an object, without the fields that the cluster does not
// know if that is allowed.
func (a *Applier) applyDraft(o *target, draft *unstructured.Unstructured, how cluster.How) (cluster.Applied, error) {
	applied, err := a.write(o, draft, how)
	a.handler.Warned(o.Manifest, maskedWarnings(o.Manifest, applied.Warnings))
	if err == nil {
		a.warnOfAdmission(o, draft, applied.Object)
	}
	unknown := unknownFields(err)
	if len(unknown) == 0 || a.hasWritten(o.resource.Group) {
		return applied, err
	}
	if !a.options.DropUnknownFields {
		return applied, refusal{ResourceInvalid, "the cluster knows no field " + strings.Join(a.allUnknown(o.resource, draft, unknown), ", ") +
			" of it: correct or remove it, or let such fields be left out with --unknown-fields=drop"}
	}
	if !removeFields(draft, unknown) {
		return applied, err
	}
	o.isLean = true
	for _, path := range unknown {
		a.handler.Warned(o.Manifest, []string{"the cluster knows no field " + path + ": left out"})
	}
	return a.applyDraft(o, draft, how)
}

// allUnknown adds to some unknown fields those that the server names only once these are
// gone, for it does not look below a mapping that has some.
func (a *Applier) allUnknown(resource cluster.Resource, object *unstructured.Unstructured, unknown []string) []string {
	all, rest := slices.Clone(unknown), object.DeepCopy()
	for len(unknown) > 0 && removeFields(rest, unknown) {
		_, err := a.cluster.Apply(a.requests, resource, rest, cluster.Forced|cluster.Dry)
		unknown = unknownFields(err)
		all = append(all, unknown...)
	}
	slices.Sort(all)
	return all
}

// removeFields takes fields out of an object. It says whether it got on with that.
func removeFields(object *unstructured.Unstructured, paths []string) bool {
	removed := false
	for _, path := range paths {
		removed = fields.Remove(object.Object, path) || removed
	}
	return removed
}

// warnOfAdmission tells which fields the API server keeps otherwise than they were sent: no apply can
// change that, and so each would find them again.
func (a *Applier) warnOfAdmission(o *target, sent, now *unstructured.Unstructured) {
	if holdsSecrets(o.Manifest) {
		return
	}
	for _, field := range mutated("", now.Object, sent.Object) {
		a.handler.Warned(o.Manifest, []string{"admission makes " + field + " something else than the manifest says: a mutating policy or webhook does that"})
	}
}
