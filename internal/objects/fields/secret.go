package fields

import (
	"maps"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// The masks of a secret, and of the second one if two differ.
const (
	masked      = "***"
	maskedOther = "*** (changed)"
)

// A secretValue can be compared, but is never shown.
type secretValue struct{ value any }

// Mask returns a copy of an object without the values of Secrets, whether it is a Secret or contains some, and without
// those of hooks of Deployments.
func Mask(object map[string]any) map[string]any {
	if object == nil {
		return nil
	}
	open, _ := maskAt("", hideWhole(object)).(map[string]any)
	return open
}

// AsMasked returns a document of an object whose values are masked. It is not a manifest: its apply would set the
// values to asterisks.
func AsMasked(object map[string]any) map[string]any { return map[string]any{"masked": object} }

// HoldsSecrets reports whether an object is or contains a Secret with values. Hooks are not checked.
func HoldsSecrets(object map[string]any) bool { return hasSecret(hideWhole(object)) }

// IsMask reports whether a value is the mask of a secret.
func IsMask(value any) bool { return value == masked || value == maskedOther }

// isSecret reports whether a mapping is a Secret, in any version: "/v1" is the same as
// "v1". A nested mapping may be only a reference to a Secret.
func isSecret(fields map[string]any, isWhole bool) bool {
	if groupKind(fields) != kinds.Secret {
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
	"apiVersion", "kind", "name", "namespace", "uid", "resourceVersion", "fieldPath", "key", "optional", "controller",
	"blockOwnerDeletion",
}

// hideWhole returns an object, with its values hidden if it is a Secret.
func hideWhole(object map[string]any) map[string]any {
	if isSecret(object, true) {
		return hideSecret(object)
	}
	return object
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
		if !IsShown(key) {
			value = hideLeaves(value)
		}
		left[key] = value
	}
	closed["annotations"] = left
	return closed
}

// IsShown reports whether an annotation of a Secret is one that Runlevel or OpenShift acts on.
func IsShown(annotation string) bool {
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

// hasSecret reports whether a value has hidden values, or those of Secrets within it.
func hasSecret(value any) bool {
	switch value := value.(type) {
	case secretValue:
		return true
	case map[string]any:
		if isSecret(value, false) {
			value = hideSecret(value)
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

// maskAt returns a copy of the value of a key, in which hidden values, values of Secrets, and values in hooks of
// Deployments that may be secret are masked.
func maskAt(key string, value any) any {
	switch value := value.(type) {
	case secretValue:
		return masked
	case string:
		return maskedAnnotation(key, value)
	case map[string]any:
		if isSecret(value, false) {
			value = hideSecret(value)
		}
		open := make(map[string]any, len(value))
		for key, field := range value {
			open[key] = maskAt(key, field)
		}
		return open
	case []any:
		open := make([]any, len(value))
		for i, item := range value {
			open[i] = maskAt("", item)
		}
		return open
	default:
		return value
	}
}

// copyAnnotation has a copy of the object that kubectl has applied, its annotations included.
const copyAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// maskedAnnotation returns the value of an annotation without values in hooks that may be secret.
func maskedAnnotation(key, text string) string {
	switch {
	case key == deploymenthook.Annotation:
		return deploymenthook.Masked(text)
	case key == copyAnnotation && strings.Contains(text, deploymenthook.Annotation):
		return masked
	default:
		return text
	}
}

// maskedChange returns the value of a key before and after, without secrets. Two masks of different values differ.
func maskedChange(key string, before, after any) (maskedBefore, maskedAfter any) {
	from, wasText := before.(string)
	name, isText := after.(string)
	if wasText && isText && key == deploymenthook.Annotation {
		return deploymenthook.MaskedChange(from, name)
	}
	before, after = maskAt(key, before), maskAt(key, after)
	if before == masked && after == masked {
		return masked, maskedOther
	}
	return before, after
}
