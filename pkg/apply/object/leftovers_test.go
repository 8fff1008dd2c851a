package object

import (
	"fmt"
	"slices"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// TestFewestLeftovers: exactly the needed fields are found, with few tries.
func TestFewestLeftovers(t *testing.T) {
	const all = 32
	var some []fieldpath.Path
	for i := range all {
		some = append(some, fieldpath.MakePathOrDie(fmt.Sprint(i)))
	}
	for _, needed := range [][]int{{0}, {31}, {7, 8}, {0, 16, 31}} {
		tries := 0
		found := fewestFields(nil, some, func(removed []fieldpath.Path) bool {
			tries++
			return !slices.ContainsFunc(needed, func(i int) bool {
				return !slices.ContainsFunc(removed, some[i].Equals)
			})
		})
		var want []fieldpath.Path
		for _, i := range needed {
			want = append(want, some[i])
		}
		if !slices.EqualFunc(want, found, fieldpath.Path.Equals) || tries > all {
			t.Errorf("got %v, want %v, in %d tries", found, needed, tries)
		}
	}
}
