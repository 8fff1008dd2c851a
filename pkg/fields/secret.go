package fields

import (
	"maps"
	"slices"
	"strings"
)

// What stands in the place of a secret, and of another one where two differ.
const (
	masked      = "***"
	maskedOther = "*** (changed)"
)

// A sealed value is a secret one. It can be compared, and is never shown.
type sealed struct{ value any }

// Mask returns an object without the values of Secrets, be it one or have some in it:
// the object itself if there are none. What it returns must not be changed.
func Mask(object map[string]any) map[string]any {
	if isSecret(object, true) {
		object = seal(object)
	}
	open, _ := mask(object).(map[string]any)
	return open
}

// IsMask says whether a value only stands in the place of a secret.
func IsMask(value any) bool { return value == masked || value == maskedOther }

// isSecret says whether a mapping is a Secret, in whatever version: "/v1" is the same as
// "v1". What is within something else may only name one.
func isSecret(fields map[string]any, isWhole bool) bool {
	if fields["kind"] != "Secret" || groupKind(fields) != kindOf("Secret") {
		return false
	}
	if isWhole {
		return true
	}
	for key := range fields {
		if !slices.Contains(referring, key) {
			return true
		}
	}
	return false
}

// referring are the fields of what names an object and is none.
var referring = []string{
	"apiVersion", "kind", "name", "namespace", "uid", "resourceVersion", "fieldPath", "key", "optional", "controller", "blockOwnerDeletion",
}

// seal returns a Secret, or what became one or was one, in which all is sealed that can
// be secret: also a misspelt field, which may hold what belongs into data.
func seal(object map[string]any) map[string]any {
	if object == nil {
		return nil
	}
	closed := make(map[string]any, len(object))
	for key, value := range object {
		_, isText := value.(string)
		_, isBool := value.(bool)
		metadata, isMapping := value.(map[string]any)
		switch {
		case isText && slices.Contains([]string{"apiVersion", "kind", "type"}, key), isBool && key == "immutable":
			closed[key] = value
		case isMapping && key == "metadata":
			closed[key] = sealMetadata(metadata)
		default:
			closed[key] = sealLeaves(value)
		}
	}
	return closed
}

// sealMetadata seals what tools write into the metadata of a Secret: copies of it, as
// kubectl apply does, and who knows what else. What Runlevel and OpenShift go by is
// shown.
func sealMetadata(metadata map[string]any) map[string]any {
	closed := maps.Clone(metadata)
	if managed, found := metadata["managedFields"]; found {
		closed["managedFields"] = sealLeaves(managed)
	}
	annotations, isMapping := metadata["annotations"].(map[string]any)
	if !isMapping {
		if value := metadata["annotations"]; value != nil {
			closed["annotations"] = sealed{value}
		}
		return closed
	}
	left := make(map[string]any, len(annotations))
	for key, value := range annotations {
		if !isShown(key) {
			value = sealLeaves(value)
		}
		left[key] = value
	}
	closed["annotations"] = left
	return closed
}

// isShown says whether an annotation of a Secret is one that decides what becomes of it.
func isShown(annotation string) bool {
	domain, _, _ := strings.Cut(annotation, "/")
	return slices.Contains([]string{"release.openshift.io", "capability.openshift.io", "runlevel.dev"}, domain) ||
		strings.HasSuffix(domain, ".release.openshift.io")
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

// mask puts the mask in the place of what is sealed, and of what Secrets within a value
// keep. Where there are none, it is the value itself.
func mask(value any) any {
	if !holdsSecret(value) {
		return value
	}
	return unseal(value)
}

func holdsSecret(value any) bool {
	switch value := value.(type) {
	case sealed:
		return true
	case map[string]any:
		if isSecret(value, false) {
			return true
		}
		for _, field := range value {
			if holdsSecret(field) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, holdsSecret)
	}
	return false
}

func unseal(value any) any {
	switch value := value.(type) {
	case sealed:
		return masked
	case map[string]any:
		if isSecret(value, false) {
			value = seal(value)
		}
		open := make(map[string]any, len(value))
		for key, field := range value {
			open[key] = unseal(field)
		}
		return open
	case []any:
		open := make([]any, len(value))
		for i, item := range value {
			open[i] = unseal(item)
		}
		return open
	default:
		return value
	}
}
