package lint

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// An UncheckedKind is a kind whose objects are not validated, since its schema is not known.
type UncheckedKind struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Count      int    `json:"count"` // of objects
}

// unchecked returns the kinds of the payload that Kubernetes does not have, and that no definition of the payload
// describes on the clusters of their objects. Of a component in a release, only its own objects count.
func (s *subject) unchecked() []UncheckedKind {
	counts := map[schema.GroupVersionKind]int{}
	for _, m := range s.normal {
		if s.change.concerns(m) && !kinds.Scheme().Recognizes(m.kind) && len(s.schemas.validatorsOf(m)) == 0 {
			counts[m.kind]++
		}
	}
	found := []UncheckedKind{}
	for kind, count := range counts {
		found = append(found, UncheckedKind{kind.GroupVersion().String(), kind.Kind, count})
	}
	slices.SortFunc(found, func(a, b UncheckedKind) int {
		return cmp.Or(cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Kind, b.Kind))
	})
	return found
}
