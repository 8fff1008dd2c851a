// Package ownership finds the field managers of an object's fields, and takes fields over: those
// of the tools that managed the object before us, so that fields that a manifest no longer has are
// removed from the object, as if we had created it. Other managers, such as an
// autoscaler or a controller that injects certificates, keep their fields.
//
// It applies nothing, and has only a default list of managers whose fields are taken over.
//
// DryRunAdopt is for callers that may change nothing. Conflicts and Owners return the other managers, and Foreign the
// fields that only they have set. Start with Adopt.
package ownership

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/fields"
)

// isOurs reports whether an entry records our applies.
func isOurs(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == cluster.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply &&
		entry.Subresource == ""
}

// isAdopted reports whether an entry is taken over from some managers. Our own entry for
// creating an object, without applying it, is taken over, too.
func isAdopted(entry metav1.ManagedFieldsEntry, from []string) bool {
	if entry.Subresource != "" || isOurs(entry) {
		return false
	}
	return entry.Manager == cluster.FieldManager || slices.Contains(from, entry.Manager)
}

// fieldsOf returns the fields of an entry, which may have none.
func fieldsOf(entry metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := fieldpath.NewSet()
	if entry.FieldsV1 == nil || len(entry.FieldsV1.GetRawBytes()) == 0 {
		return set, nil
	}
	if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
		return nil, fmt.Errorf("read which fields %s owns: %w", entry.Manager, err)
	}
	return set, nil
}

// setFields sets the fields of an entry.
func setFields(entry *metav1.ManagedFieldsEntry, set *fieldpath.Set) {
	body, _ := set.ToJSON() // can't fail: it writes to memory
	entry.FieldsV1 = metav1.NewFieldsV1(string(body))
}

// patchEntries replaces the entries of a live object, unless it was written since it was read.
func patchEntries(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, live *unstructured.Unstructured,
	entries []metav1.ManagedFieldsEntry) (metav1.Object, error) {
	patch, err := json.Marshal([]operation{
		{"replace", "/metadata/managedFields", entries},
		{"replace", "/metadata/resourceVersion", live.GetResourceVersion()},
	})
	if err != nil {
		return nil, fmt.Errorf("take over fields of %s %s: %w", resource.Kind, live.GetName(), err)
	}
	return c.Patch(ctx, resource, live.GetNamespace(), live.GetName(), patch)
}

// OwnersIn returns a function like Owners for the fields of an object. It takes paths of differences between the object
// and its wanted state. There may be very many of these paths.
func OwnersIn(live *unstructured.Unstructured) func(fields.Path) []string {
	entries := read(live.GetManagedFields())
	all := fieldpath.NewSet()
	for _, entry := range entries {
		all = all.Union(entry.fields)
	}
	return func(path fields.Path) []string { return ownersOf(entries, asOwned(live.Object, path, all)) }
}

// asOwned converts a path to the form that it has in managedFields.
func asOwned(object any, path fields.Path, all *fieldpath.Set) fieldpath.Path {
	var owned fieldpath.Path
	for _, step := range path {
		inner, place := step.In(object)
		element := fieldpath.PathElement{FieldName: &step.Key}
		if step.IsItem() {
			element = itemAs(inner, place, all)
		}
		owned, object, all = append(owned, element), inner, all.WithPrefix(element)
	}
	return owned
}

// itemAs returns a step to an item of a list as in managedFields: by its keys, its value or its index. Only entries
// that have the item show which one is used.
func itemAs(item any, place int, all *fieldpath.Set) fieldpath.PathElement {
	for _, step := range steps(all) {
		if leadsTo(step, item, place) {
			return step
		}
	}
	return fieldpath.PathElement{Index: &place}
}

// leadsTo reports whether a step of an entry leads to an item of a list.
func leadsTo(step fieldpath.PathElement, item any, place int) bool {
	switch {
	case step.Key != nil:
		keyed, _ := item.(map[string]any)
		return keyed != nil && !slices.ContainsFunc(*step.Key, func(key value.Field) bool {
			return !value.Equals(key.Value, value.NewValueInterface(keyed[key.Name]))
		})
	case step.Value != nil:
		return item != nil && value.Equals(*step.Value, value.NewValueInterface(item))
	default:
		return step.Index != nil && *step.Index == place
	}
}

// Disown removes the owner references to a ClusterVersion from a live object. The cluster-version operator sets one on
// each object that it creates; with it, garbage collection deletes the object when the ClusterVersion is deleted. An
// adoption removes it, too, from objects that are applied.
func Disown(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, live metav1.Object) error {
	var patch []operation
	for i, owner := range slices.Backward(live.GetOwnerReferences()) {
		if owner.Kind == "ClusterVersion" && strings.HasPrefix(owner.APIVersion, "config.openshift.io/") {
			path := fmt.Sprintf("/metadata/ownerReferences/%d", i)
			patch = append(patch, operation{"test", path + "/uid", string(owner.UID)},
				operation{Op: "remove", Path: path})
		}
	}
	if len(patch) == 0 {
		return nil
	}
	body, err := json.Marshal(patch)
	if err == nil {
		_, err = c.Patch(ctx, resource, live.GetNamespace(), live.GetName(), body)
	}
	if err != nil {
		return fmt.Errorf("remove the owner reference to the ClusterVersion from %s %s: %w", resource.Kind,
			live.GetName(),
			err)
	}
	return nil
}
