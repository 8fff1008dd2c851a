package references

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A Referrer is a manifest of a release, which may refer to others.
type Referrer interface {
	Object() *unstructured.Unstructured
	ID() kinds.ID
	IsTombstone() bool
}

// A Use is a reference with the manifest that has it.
type Use[M Referrer] struct {
	By M
	Reference
}

// A Graph is who refers to whom in a release.
type Graph[M Referrer] struct {
	References [][]Reference         // of each manifest; none of tombstones
	Uses       map[kinds.ID][]Use[M] // by the referenced objects, without harmless references
	Makers     map[kinds.ID]M        // by the objects that controllers make of manifests
}

// NewGraph returns the graph of the manifests of a release. The definitions of its custom resources may be in the
// release before, too.
func NewGraph[M Referrer](manifests, before []M) *Graph[M] {
	definitions := definitionsOf(manifests, before)
	g := &Graph[M]{
		References: make([][]Reference, len(manifests)),
		Uses:       map[kinds.ID][]Use[M]{},
		Makers:     map[kinds.ID]M{},
	}
	for i, m := range manifests {
		if m.IsTombstone() {
			continue
		}
		g.References[i] = definitions.Of(m.Object())
		for _, reference := range g.References[i] {
			if reference.Consequence != Harmless {
				g.Uses[reference.To] = append(g.Uses[reference.To], Use[M]{m, reference})
			}
		}
		for _, made := range definitions.Made(m.Object()) {
			g.Makers[made] = m
		}
	}
	return g
}
