// Package ownership knows who owns which field of an object, and takes fields over: those
// of the tools that had the object before us, so that what a manifest no longer has leaves
// the object, as it does where we were first. What else has fields there, such as a
// controller that scales or one that fills in certificates, keeps them.
//
// It applies nothing, and does not decide whose fields are taken over beyond the usual.
//
// Adopt is the call to start from, and DryRunAdopt is for callers that may change nothing. Conflicts
// and Owners name the other managers.
package ownership

import (
	"bytes"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/runlevel/runlevel/internal/cluster"
)

// isOurs says whether an entry is of what we apply.
func isOurs(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == cluster.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
}

// isAdopted says whether an entry is one that is taken over from some managers. That we
// made an object, without applying it, is an entry to be taken over, too.
func isAdopted(entry metav1.ManagedFieldsEntry, from []string) bool {
	if entry.Subresource != "" || isOurs(entry) {
		return false
	}
	return entry.Manager == cluster.FieldManager || slices.Contains(from, entry.Manager)
}

// fieldsOf are the fields of an entry. They need not be there.
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
