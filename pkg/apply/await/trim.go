package await

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/ready"
)

// A tracker knows thousands of objects, and keeps of each what somebody may still ask for.

// trim drops what nobody needs any more of an object: of one that is ready, and of one that
// nobody waits for yet. Its watch shows it whole again, once it changes or somebody waits.
func (t *Tracker) trim(o *tracked) {
	isWatched := o.watch != nil
	switch {
	case o.state == expected || o.live == nil || isWatched && o.verdict.State != ready.Ready || !isWatched && o.state >= trusted:
	case len(o.calls) == 0: // else it is looked at again when those change
		o.live, o.isTrimmed = onlyMetadata(o.live), true
	case o.verdict.State == ready.Ready && o.resource.GroupKind() == kinds.CustomResourceDefinition:
		o.live = withoutSpec(o.live)
	}
}

// trimmedCopy leaves out what nobody here reads: who owns which field, and pods as a workload would
// make them, unless the release says for itself when the object is ready. The object that is
// given stays whole.
func trimmedCopy(object *unstructured.Unstructured) *unstructured.Unstructured {
	kept := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	for _, field := range []string{"metadata", "spec"} {
		if fields, isMapping := kept.Object[field].(map[string]any); isMapping {
			kept.Object[field] = maps.Clone(fields)
		}
	}
	trim(kept)
	return kept
}

// trim is trimmedCopy for an object that nobody else has.
func trim(object *unstructured.Unstructured) {
	object.SetManagedFields(nil)
	if _, isMarked := object.GetAnnotations()[ready.Annotation]; !isMarked {
		unstructured.RemoveNestedField(object.Object, "spec", "template")
	}
}

// withoutSpec leaves out what is most of a large definition.
func withoutSpec(object *unstructured.Unstructured) *unstructured.Unstructured {
	kept := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	delete(kept.Object, "spec")
	return kept
}

// onlyMetadata leaves out all but who it is.
func onlyMetadata(object *unstructured.Unstructured) *unstructured.Unstructured {
	kept := &unstructured.Unstructured{Object: map[string]any{}}
	for _, field := range []string{"apiVersion", "kind", "metadata"} {
		kept.Object[field] = object.Object[field]
	}
	return kept
}
