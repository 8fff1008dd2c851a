package fields

import (
	"maps"
	"slices"
)

// What stands in the place of a secret, and of another one where two differ.
const (
	masked      = "***"
	maskedOther = "*** (changed)"
)

// lastApplied is where kubectl apply keeps a copy of the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// A sealed value is a secret one. It can be compared, and is never shown.
type sealed struct{ value any }

// Mask returns an object without the values of a Secret: the object itself if it is
// none. What it returns must not be changed.
func Mask(object map[string]any) map[string]any {
	if !isSecret(object) {
		return object
	}
	open, _ := unseal(seal(object)).(map[string]any)
	return open
}

// isSecret says whether an object is a Secret, in whatever version: "/v1" is the same
// as "v1".
func isSecret(object map[string]any) bool {
	return groupKind(object) == kindOf("Secret")
}

// shown are the fields of a Secret that are none. All others are sealed, so that a
// misspelt one does not give away what belongs into data.
var shown = []string{"apiVersion", "kind", "metadata", "type", "immutable"}

// seal returns an object in which what a Secret keeps is sealed.
func seal(object map[string]any) map[string]any {
	if object == nil {
		return nil
	}
	object = maps.Clone(object)
	for key, value := range object {
		if !slices.Contains(shown, key) {
			object[key] = sealLeaves(value)
		}
	}
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if copied, found := annotations[lastApplied]; found {
		metadata, annotations = maps.Clone(metadata), maps.Clone(annotations)
		annotations[lastApplied] = sealed{copied}
		metadata["annotations"] = annotations
		object["metadata"] = metadata
	}
	return object
}

// sealLeaves seals all values and keeps the keys, which people need to see.
func sealLeaves(value any) any {
	fields, isMapping := value.(map[string]any)
	switch {
	case value == nil:
		return nil
	case !isMapping:
		return sealed{value}
	}
	closed := make(map[string]any, len(fields))
	for key, field := range fields {
		closed[key] = sealLeaves(field)
	}
	return closed
}

// unseal puts the mask in the place of what is sealed.
func unseal(value any) any {
	switch value := value.(type) {
	case sealed:
		return masked
	case map[string]any:
		open := make(map[string]any, len(value))
		for key, field := range value {
			open[key] = unseal(field)
		}
		return open
	default:
		return value
	}
}
