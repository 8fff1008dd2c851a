package ownership

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// Regained returns the fields that Runlevel owns again after an apply, each with
// the manager that owned it in between. If none did, the field was removed: most likely by the manager
// that wrote last. A manager that has only removed fields leaves no entry.
func Regained(before, after []metav1.ManagedFieldsEntry) []Conflict {
	others, last := read(before), lastOther(before)
	var losses []Conflict
	ownedByRunlevel(after).Difference(ownedByRunlevel(before)).Leaves().Iterate(func(path fieldpath.Path) {
		field := printable.Line(strings.TrimPrefix(path.String(), "."))
		owners := ownersOf(others, path)
		if len(owners) == 0 {
			owners = []string{last}
		}
		for _, owner := range owners {
			losses = append(losses, Conflict{Manager: owner, Field: field})
		}
	})
	slices.SortFunc(losses, inOrder)
	return losses
}

// ownedByRunlevel returns the fields that Runlevel has applied.
func ownedByRunlevel(entries []metav1.ManagedFieldsEntry) *fieldpath.Set {
	all := fieldpath.NewSet()
	for _, entry := range entries {
		if set, err := fieldsOf(entry); err == nil && isOurs(entry) {
			all = all.Union(set)
		}
	}
	return all
}

// unknownManager is printed for a manager that has left no entry.
const unknownManager = "unknown manager"

// lastOther returns the manager that has written the object itself last; unknownManager if that was us.
func lastOther(entries []metav1.ManagedFieldsEntry) string {
	var last metav1.ManagedFieldsEntry
	for _, entry := range entries {
		if entry.Subresource == "" && !timeOf(entry).Before(timeOf(last)) {
			last = entry
		}
	}
	if last.Manager == "" || isOurs(last) {
		return unknownManager
	}
	return managerName(last.Manager, "")
}
