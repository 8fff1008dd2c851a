// Package ownership finds the field managers of an object's fields, and takes fields over: those
// of the tools that managed the object before us, so that fields that a manifest no longer has are
// removed from the object, as if we had created it. Other managers, such as an
// autoscaler or a controller that injects certificates, keep their fields.
//
// It applies nothing, and has only a default list of managers whose fields are taken over.
//
// Adopt is the call to start from, and DryRunAdopt is for callers that may change nothing. Conflicts
// and Owners return the other managers, and Foreign the fields that only they have set.
package ownership

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/runlevel/runlevel/internal/cluster"
)

// isOurs reports whether an entry is of our applies.
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
