package object

import (
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// immutableMessages are the messages with which API servers refuse to change an immutable field: their answers have no
// separate reason for such a refusal.
var immutableMessages = []string{
	"immutable", "may not change once set", "cannot change roleRef", "may not be changed", "cannot be changed",
	"updates to statefulset spec for fields other than", "pod updates may not change fields other than",
	"updates to provisioner are forbidden", "updates to parameters are forbidden",
}

// immutableFields returns the fields that a server refused to change; none if the server refused the object for another
// cause as well.
func immutableFields(err error) []string {
	if !apierrors.IsInvalid(err) {
		return nil
	}
	details := status(err).Details
	if details == nil {
		return nil
	}
	var fixed []string
	for _, cause := range details.Causes {
		isFixed := slices.ContainsFunc(immutableMessages, func(words string) bool {
			return strings.Contains(cause.Message, words)
		})
		if !isFixed {
			return nil // creating the object again would not help
		}
		if !slices.Contains(fixed, cause.Field) {
			fixed = append(fixed, cause.Field)
		}
	}
	slices.Sort(fixed) // their order differs between versions of Kubernetes
	return fixed
}

// cannotChange returns a text with the fields that can't be changed.
func cannotChange(fixed []string) string { return strings.Join(fixed, ", ") + " can't be changed" }

// remedyFor returns the remedies for fields of a kind that can't be changed.
func remedyFor(kind schema.GroupKind) string {
	if kinds.HoldsData(kind) {
		return "keep the fields as they were, or give the object another name"
	}
	return "keep the fields as they were, give the object another name and this one a tombstone, or allow to delete " +
		"it and recreate it with the annotation " +
		RecreateAnnotation + `: "true"`
}

// mayRecreate returns an error if an object with changed immutable fields must not be deleted and created again, with
// the fields that can't be changed, and the remedies.
func mayRecreate(resource cluster.Resource, m *payload.Manifest, fixed []string) error {
	switch {
	case !m.IsRecreated():
		return refusal{ResourceInvalid, cannotChange(fixed) + ": " + remedyFor(resource.GroupKind())}
	case kinds.HoldsData(resource.GroupKind()):
		return refusal{ResourceInvalid, cannotChange(fixed) + ", and to recreate a " + resource.Kind +
			" would lose all that is in it: " + RecreateAnnotation + " does not hold for it"}
	}
	return nil
}

// recreate deletes an object that can't be changed and creates it again, if the manifest allows to recreate the object.
func (a *Applier) recreate(o *liveObject, fixed []string) (Change, error) {
	m, resource := o.Manifest, o.resource
	if err := mayRecreate(resource, m, fixed); err != nil {
		return Change{}, err
	}
	live, err := a.cluster.GetMetadata(a.requestCtx, resource, m.ID().Namespace, m.ID().Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return Change{}, err
	}
	if err == nil {
		if err := a.scaling.keep(o); err != nil {
			return Change{}, err
		}
		if _, err := a.deleter.request(m.ID(), live.UID); err != nil {
			return Change{}, err
		}
		if seen := tombstone.Observe(a.requestCtx, a.cluster, m.ID(), live.UID); seen.State != tombstone.Absent &&
			seen.State != tombstone.Reappeared {
			return Change{}, a.deleter.terminatingFailure(m, live.UID)
		}
	}
	o.exists = false
	applied, err := a.sendDraft(o, cluster.Force)
	if err != nil {
		return Change{}, err
	}
	change := a.noteApplied(o, applied, objectmeta.Of(o.resource, applied.Object), Recreated)
	change.Message = cannotChange(fixed)
	return change, nil
}
