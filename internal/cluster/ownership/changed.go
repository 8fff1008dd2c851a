package ownership

import (
	"math/bits"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Writer is a manager that has written an object.
type Writer struct {
	Manager string `json:"manager"`
	// time of its last write; the API server records none for the scale subresource
	Since time.Time `json:"since,omitzero"`
}

// A claim is the fields that a manager has written since we applied an object last, and that we don't
// own.
type claim struct {
	Writer
	fields  *fieldpath.Set
	isYield bool // the fields are left to the manager: see Yields and IsShared
}

// Changed returns the managers that have taken fields of ours since we applied a live object last, the
// newest first, and whether the object was changed at all: a manager that only removes fields leaves no
// entry. Fields that are left to others don't count. The function wasOurs reports whether we owned
// exactly some fields after the last apply; if it never does, all managers that may have taken
// fields are returned.
func Changed(live *unstructured.Unstructured, isScaled func() bool,
	wasOurs func(fields []byte) bool) (by []Writer, isChanged bool) {
	have := ownedByRunlevel(live.GetManagedFields())
	if fields, err := have.ToJSON(); err != nil || wasOurs(fields) {
		return nil, false
	}
	claims := claimsOn(live, isScaled)
	if few := fewest(have, claims, wasOurs); few != nil {
		claims = few
	}
	isChanged = true
	for _, claim := range claims {
		if claim.isYield {
			isChanged = false
		} else if !slices.Contains(by, claim.Writer) {
			by = append(by, claim.Writer)
		}
	}
	slices.SortStableFunc(by, func(a, b Writer) int { return b.Since.Compare(a.Since) })
	return by, isChanged || len(by) > 0
}

// claimsOn returns the fields that others have written since we applied an object, other than its status.
func claimsOn(live *unstructured.Unstructured, isScaled func() bool) []claim {
	entries := live.GetManagedFields()
	applied, since := ownedByRunlevel(entries), time.Time{}
	for _, entry := range entries {
		if isOurs(entry) {
			since = timeOf(entry)
		}
	}
	var claims []claim
	for _, entry := range entries {
		set, err := fieldsOf(entry)
		isOlder := entry.Time != nil && entry.Time.Time.Before(since)
		if err != nil || isOlder || entry.Manager == cluster.FieldManager || entry.Subresource == "status" {
			continue
		}
		own, yields := fieldpath.NewSet(), fieldpath.NewSet()
		set.Difference(applied).Leaves().Iterate(func(field fieldpath.Path) {
			loss := Conflict{Field: printable.Line(strings.TrimPrefix(field.String(), "."))}
			if IsShared(live, loss) || Yields(live, loss, field.Equals(path) && isScaled()) {
				yields.Insert(field.Copy())
			} else {
				own.Insert(field.Copy())
			}
		})
		writer := Writer{Manager: managerName(entry.Manager, entry.Subresource), Since: timeOf(entry)}
		for _, item := range []claim{{writer, own, false}, {writer, yields, true}} {
			if !item.fields.Empty() {
				claims = append(claims, item)
			}
		}
	}
	return claims
}

// maxClaims limits the claims that are tried in all combinations.
const maxClaims = 8

// fewest returns the fewest claims that, together with the fields we own, are the fields we owned; nil if
// none are.
func fewest(have *fieldpath.Set, claims []claim, wasOurs func(fields []byte) bool) (few []claim) {
	if len(claims) > maxClaims {
		return nil
	}
	for choice := uint(1); choice < 1<<len(claims); choice++ {
		if few != nil && bits.OnesCount(choice) >= len(few) {
			continue
		}
		var chosen []claim
		had := have
		for i, item := range claims {
			if choice&(1<<i) != 0 {
				chosen, had = append(chosen, item), had.Union(item.fields)
			}
		}
		if fields, err := had.ToJSON(); err == nil && wasOurs(fields) {
			few = chosen
		}
	}
	return few
}

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
