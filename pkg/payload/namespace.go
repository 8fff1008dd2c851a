package payload

import (
	"crypto/sha256"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// setNamespaces puts objects without a namespace into that of the options, if their kinds are known to be in one:
// Kubernetes' own kinds, and those that the release defines.
func (r *reader) setNamespaces(files []*manifestFile) {
	if r.options.Namespace == "" {
		return
	}
	defined := map[schema.GroupKind]bool{}
	for _, file := range files {
		for _, m := range file.manifests {
			scope, _, _ := unstructured.NestedString(m.object.Object, "spec", "scope")
			if m.GroupVersionKind().GroupKind() == kinds.CustomResourceDefinition && scope == "Namespaced" {
				defined[kinds.DefinedBy(m.object)] = true
			}
		}
	}
	for _, file := range files {
		for _, m := range file.manifests {
			kind := m.GroupVersionKind().GroupKind()
			if m.object.GetNamespace() != "" || kinds.ScopeOf(kind) != kinds.Namespaced && !defined[kind] {
				continue
			}
			m.object.SetNamespace(r.options.Namespace)
			m.id = idOf(m.object)
			// so that another namespace is another manifest
			m.sum = sha256.Sum256(slices.Concat(m.sum[:], []byte(r.options.Namespace)))
			r.payload.Placed = append(r.payload.Placed, m)
		}
	}
}
