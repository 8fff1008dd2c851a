package ownership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"

	"github.com/runlevel/runlevel/internal/cluster"
)

// attempts bounds how often an adoption is tried when others write at the same time. Who
// writes more often than that is worth a pause, which is the caller's to make.
const attempts = 5

// DefaultManagers are those whose fields are taken over unless more are asked for: kubectl with its ways to make objects,
// installers, and controllers that apply what is in Git.
func DefaultManagers() []string {
	return []string{
		"kubectl", "kubectl-client-side-apply", "kubectl-create", "helm", "kapp", "cluster-version-operator",
		"kustomize-controller", "helm-controller", "argocd-controller",
	}
}

// Adopt makes those fields of a live object ours that one of some managers owns, whether
// by applying or by updating, so that our next apply takes away what it does not say. What
// we own from having made the object becomes part of that. Fields of others do not change, nor do
// those that were set through a subresource.
//
// It does nothing where we have applied already. It returns the object as it is then, and
// the managers that it found, in the order of their names: none if there was nothing to take
// over. An object that was written in between is looked at again; one that is another by now
// is a conflict.
func Adopt(ctx context.Context, c *cluster.Cluster, in cluster.Resource, live metav1.Object, from []string) (metav1.Object, []string, error) {
	var conflict error
	for range attempts {
		patch, err := adoption(ctx, c, in, live, from)
		if patch == nil || err != nil {
			return live, nil, err
		}
		var head metav1.Object
		head, conflict = c.Patch(ctx, in, live.GetNamespace(), live.GetName(), patch)
		if conflict == nil {
			return head, found(live.GetManagedFields(), from), nil
		}
		if !apierrors.IsConflict(conflict) {
			return live, nil, conflict
		}
		head, err = c.GetMetadata(ctx, in, live.GetNamespace(), live.GetName())
		if err != nil {
			return live, nil, err
		}
		if head.GetUID() != live.GetUID() {
			return live, nil, conflict
		}
		live = head
	}
	return live, nil, conflict
}

// found names the managers whose entries are taken over.
func found(entries []metav1.ManagedFieldsEntry, from []string) []string {
	var names []string
	for _, entry := range entries {
		if isAdopted(entry, from) && entry.Manager != cluster.FieldManager {
			names = append(names, entry.Manager)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// adoption is the patch that takes fields over, if the object is still as it was read; nil
// if there are none to take over.
func adoption(ctx context.Context, c *cluster.Cluster, in cluster.Resource, live metav1.Object, from []string) ([]byte, error) {
	entries := live.GetManagedFields()
	isListed := func(entry metav1.ManagedFieldsEntry) bool { return isAdopted(entry, from) }
	if slices.ContainsFunc(entries, isOurs) || !slices.ContainsFunc(entries, isListed) {
		return nil, nil
	}
	version, err := versionOf(ctx, c, in, entries, isListed)
	if err != nil {
		return nil, err
	}
	offered, names := offer(entries, isListed, version)
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ManagedFields: offered, ResourceVersion: live.GetResourceVersion()}}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(object, names, cluster.FieldManager)
	if err != nil {
		return nil, fmt.Errorf("take over fields of %s %s: %w", in.Kind, live.GetName(), err)
	}
	return patch, nil
}

// versionOf is the version in which our entry names fields: that of the latest of the
// entries that it is made of. Where the server has no such version any more, it would drop
// the entry, and so the one that we apply is taken.
func versionOf(ctx context.Context, c *cluster.Cluster, in cluster.Resource, entries []metav1.ManagedFieldsEntry, isListed func(metav1.ManagedFieldsEntry) bool) (string, error) {
	ours := in.GroupVersion().String()
	latest, at := ours, time.Time{}
	for _, entry := range entries {
		if !isListed(entry) || timeOf(entry).Before(at) {
			continue
		}
		isServed, err := serves(ctx, c, in, entry.APIVersion)
		if err != nil {
			return "", err
		}
		if isServed {
			latest, at = entry.APIVersion, timeOf(entry)
		}
	}
	return latest, nil
}

// serves says whether the objects of a resource can be had in a version.
func serves(ctx context.Context, c *cluster.Cluster, in cluster.Resource, version string) (bool, error) {
	parsed, err := schema.ParseGroupVersion(version)
	if err != nil || parsed.Group != in.Group {
		return false, nil // as a Deployment was of extensions once
	}
	if parsed.Version == in.Version {
		return true, nil
	}
	_, err = c.Find(ctx, parsed.WithKind(in.Kind))
	if errors.Is(err, cluster.ErrNotServed) {
		return false, nil
	}
	return err == nil, err
}

// timeOf is when an entry was last written, if it says so.
func timeOf(entry metav1.ManagedFieldsEntry) time.Time {
	if entry.Time == nil {
		return time.Time{}
	}
	return entry.Time.Time
}

// offer makes csaupgrade take over all listed entries. By itself it would take over only
// those of updates; of each manager only one, and drop those of its other versions; and
// the entry that ours is made of would be that of any manager. So each gets a name of its
// own and the same version, and ours is there already.
//
// A field that has another path in another version is not found in the end, and stays as
// it is. To leave such an entry with its manager would keep all its fields.
func offer(entries []metav1.ManagedFieldsEntry, isListed func(metav1.ManagedFieldsEntry) bool, version string) ([]metav1.ManagedFieldsEntry, sets.Set[string]) {
	ours := metav1.ManagedFieldsEntry{
		Manager: cluster.FieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: version,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
	}
	var offered []metav1.ManagedFieldsEntry
	names := sets.New[string]()
	for i, entry := range entries {
		if isListed(entry) {
			if timeOf(entry).After(timeOf(ours)) {
				ours.Time = entry.Time
			}
			entry.Manager = fmt.Sprintf("\n%d", i) // no manager can have such a name
			entry.Operation, entry.APIVersion = metav1.ManagedFieldsOperationUpdate, version
			if entry.FieldsV1 == nil {
				entry.FieldsV1 = metav1.NewFieldsV1("{}")
			}
			names.Insert(entry.Manager)
		}
		offered = append(offered, entry)
	}
	return append(offered, ours), names
}

// Adoptable names the managers whose fields would be taken over.
func Adoptable(live metav1.Object, from []string) []string {
	return found(live.GetManagedFields(), from)
}

// Adopted is an object as it would be once some managers' fields were taken over, as far as
// who owns them goes: what they have is as if we had applied it.
func Adopted(live *unstructured.Unstructured, from []string) *unstructured.Unstructured {
	if live == nil || slices.ContainsFunc(live.GetManagedFields(), isOurs) {
		return live
	}
	entries := live.GetManagedFields()
	for i := range entries {
		if isAdopted(entries[i], from) {
			entries[i].Manager, entries[i].Operation = cluster.FieldManager, metav1.ManagedFieldsOperationApply
		}
	}
	adopted := live.DeepCopy()
	adopted.SetManagedFields(entries)
	return adopted
}
