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

// attempts bounds how often an adoption is tried when others write at the same time. After
// that the caller has to back off.
const attempts = 5

// DefaultManagers returns the managers whose fields are taken over by default: kubectl's, installers,
// and GitOps controllers.
func DefaultManagers() []string {
	return []string{
		"kubectl", "kubectl-client-side-apply", "kubectl-create", "helm", "kapp", "cluster-version-operator",
		"kustomize-controller", "helm-controller", "argocd-controller",
	}
}

// Adopt takes over those fields of a live object that some managers own, whether
// by applying or by updating, so that our next apply removes the fields that the manifest lacks. So
// does a field that we own because we created the object. Fields of other managers do not change, nor
// do those that were set through a subresource.
//
// It does nothing if we have applied the object already. It returns the object after the patch, and
// the managers that it found, sorted: none if there was nothing to take
// over. If the object was written in between, it is read again; if it was recreated, Adopt
// returns a conflict.
func Adopt(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, live metav1.Object,
	from []string) (metav1.Object, []string, error) {
	var conflict error
	for range attempts {
		patch, err := adoption(ctx, c, resource, live, from)
		if patch == nil || err != nil {
			return live, nil, err
		}
		var head metav1.Object
		head, conflict = c.Patch(ctx, resource, live.GetNamespace(), live.GetName(), patch)
		if conflict == nil {
			return head, Adoptable(live, from), nil
		}
		if !apierrors.IsConflict(conflict) {
			return live, nil, conflict
		}
		head, err = c.GetMetadata(ctx, resource, live.GetNamespace(), live.GetName())
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

// Adoptable returns the managers whose fields are taken over from an object, sorted.
func Adoptable(live metav1.Object, from []string) []string {
	var names []string
	for _, entry := range live.GetManagedFields() {
		if isAdopted(entry, from) && entry.Manager != cluster.FieldManager {
			names = append(names, entry.Manager)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// adoption returns the patch that takes fields over, if the object is still as it was read; nil
// if there are none to take over.
func adoption(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, live metav1.Object,
	from []string) ([]byte, error) {
	entries := live.GetManagedFields()
	isListed := func(entry metav1.ManagedFieldsEntry) bool { return isAdopted(entry, from) }
	if slices.ContainsFunc(entries, isOurs) || !slices.ContainsFunc(entries, isListed) {
		return nil, nil
	}
	version, err := versionOf(ctx, c, resource, entries, isListed)
	if err != nil {
		return nil, err
	}
	prepared, names := prepareEntries(entries, isListed, version)
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ManagedFields:   prepared,
		ResourceVersion: live.GetResourceVersion(),
	}}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(object, names, cluster.FieldManager)
	if err != nil {
		return nil, fmt.Errorf("take over fields of %s %s: %w", resource.Kind, live.GetName(), err)
	}
	return patch, nil
}

// versionOf returns the API version of our entry: that of the latest of the
// entries that it merges. The server would drop an entry in a version that it does not serve any more:
// then it is the version that we apply.
func versionOf(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, entries []metav1.ManagedFieldsEntry,
	isListed func(metav1.ManagedFieldsEntry) bool) (string, error) {
	appliedVersion := resource.GroupVersion().String()
	latest, latestTime := appliedVersion, time.Time{}
	for _, entry := range entries {
		if !isListed(entry) || timeOf(entry).Before(latestTime) {
			continue
		}
		isServed, err := serves(ctx, c, resource, entry.APIVersion)
		if err != nil {
			return "", err
		}
		if isServed {
			latest, latestTime = entry.APIVersion, timeOf(entry)
		}
	}
	return latest, nil
}

// serves reports whether a resource is served in a version.
func serves(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, version string) (bool, error) {
	parsed, err := schema.ParseGroupVersion(version)
	if err != nil || parsed.Group != resource.Group {
		return false, nil // such as extensions, the former group of Deployments
	}
	if parsed.Version == resource.Version {
		return true, nil
	}
	_, err = c.Find(ctx, parsed.WithKind(resource.Kind))
	if errors.Is(err, cluster.ErrNotServed) {
		return false, nil
	}
	return err == nil, err
}

// timeOf returns when an entry was last written; zero if it has no time.
func timeOf(entry metav1.ManagedFieldsEntry) time.Time {
	if entry.Time == nil {
		return time.Time{}
	}
	return entry.Time.Time
}

// prepareEntries makes csaupgrade take over all listed entries. By itself it would take over only
// entries of updates, and only one of each manager, dropping those in other versions; and
// it would turn the entry of any manager into ours. So each gets a unique manager
// and the same version, and our entry is added beforehand.
//
// A field that has another path in another version is not found in the end, and stays as
// it is. If such an entry were left with its manager, all its fields would stay.
func prepareEntries(entries []metav1.ManagedFieldsEntry, isListed func(metav1.ManagedFieldsEntry) bool,
	version string) ([]metav1.ManagedFieldsEntry, sets.Set[string]) {
	runlevelEntry := metav1.ManagedFieldsEntry{
		Manager: cluster.FieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: version,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
	}
	var prepared []metav1.ManagedFieldsEntry
	names := sets.New[string]()
	for i, entry := range entries {
		if isListed(entry) {
			if timeOf(entry).After(timeOf(runlevelEntry)) {
				runlevelEntry.Time = entry.Time
			}
			entry.Manager = fmt.Sprintf("\n%d", i) // no manager can have such a name
			entry.Operation, entry.APIVersion = metav1.ManagedFieldsOperationUpdate, version
			if entry.FieldsV1 == nil {
				entry.FieldsV1 = metav1.NewFieldsV1("{}")
			}
			names.Insert(entry.Manager)
		}
		prepared = append(prepared, entry)
	}
	return append(prepared, runlevelEntry), names
}

// Adopted returns an object with the managedFields that it would have after an adoption: the fields
// of some managers are as if we had applied them.
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
