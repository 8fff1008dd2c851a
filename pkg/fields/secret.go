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

// A secretValue can be compared, and is never shown.
type secretValue struct{ value any }

// Mask returns an object without the values of Secrets, be it one or have some in it, and without those of hooks of
// Deployments: the object itself if there are none. What it returns must not be changed.
func Mask(object map[string]any) map[string]any {
	open, _ := maskHooks(maskSecrets(object)).(map[string]any)
	return open
}

// maskSecrets returns an object without the values of Secrets.
func maskSecrets(object map[string]any) map[string]any {
	if isSecret(object, true) {
		object = hideSecret(object)
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
		if !slices.Contains(referenceFields, key) {
			return true
		}
	}
	return false
}

// referenceFields are the fields of a reference to an object: a mapping with no others is no Secret.
var referenceFields = []string{
	"apiVersion", "kind", "name", "namespace", "uid", "resourceVersion", "fieldPath", "key", "optional", "controller", "blockOwnerDeletion",
}

// hideSecret returns a Secret in which every value that can be secret is a secretValue, those of misspelt fields
// included.
func hideSecret(object map[string]any) map[string]any {
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
			closed[key] = hideMetadata(metadata)
		default:
			closed[key] = hideLeaves(value)
		}
	}
	return closed
}

// hideMetadata hides the annotations and managedFields of a Secret: kubectl apply and other tools keep copies of
// its values there. The annotations that Runlevel and OpenShift act on are shown.
func hideMetadata(metadata map[string]any) map[string]any {
	closed := maps.Clone(metadata)
	if managed, found := metadata["managedFields"]; found {
		closed["managedFields"] = hideLeaves(managed)
	}
	annotations, isMapping := metadata["annotations"].(map[string]any)
	if !isMapping {
		if value := metadata["annotations"]; value != nil {
			closed["annotations"] = secretValue{value}
		}
		return closed
	}
	left := make(map[string]any, len(annotations))
	for key, value := range annotations {
		if !isShown(key) {
			value = hideLeaves(value)
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

// hideLeaves hides all values, and keeps the keys.
func hideLeaves(value any) any {
	fields, isMapping := value.(map[string]any)
	switch {
	case value == nil:
		return nil
	case !isMapping:
		return secretValue{value}
	}
	closed := make(map[string]any, len(fields))
	for key, field := range fields {
		closed[key] = hideLeaves(field)
	}
	return closed
}

// mask replaces hidden values, and those of Secrets within a value, by the mask. A value without any is
// returned itself.
func mask(value any) any {
	if !hasSecret(value) {
		return value
	}
	return maskHidden(value)
}

func hasSecret(value any) bool {
	switch value := value.(type) {
	case secretValue:
		return true
	case map[string]any:
		if isSecret(value, false) {
			return true
		}
		for _, field := range value {
			if hasSecret(field) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, hasSecret)
	}
	return false
}

func maskHidden(value any) any {
	switch value := value.(type) {
	case secretValue:
		return masked
	case map[string]any:
		if isSecret(value, false) {
			value = hideSecret(value)
		}
		open := make(map[string]any, len(value))
		for key, field := range value {
			open[key] = maskHidden(field)
		}
		return open
	case []any:
		open := make([]any, len(value))
		for i, item := range value {
			open[i] = maskHidden(item)
		}
		return open
	default:
		return value
	}
}
