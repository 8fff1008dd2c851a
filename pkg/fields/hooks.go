package fields

import (
	"reflect"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/pkg/lifecycle"
)

// copyAnnotation has a copy of the object that kubectl has applied, its annotations included.
const copyAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// HoldsSecrets reports whether an object is a Secret with values, or has some in it. Hooks are not looked at.
func HoldsSecrets(object map[string]any) bool {
	return !reflect.DeepEqual(maskSecrets(object), object)
}

// maskHooks masks what the hooks of Deployments within a value may have of secrets. A value without any is returned
// itself.
func maskHooks(value any) any {
	if !hasHooks(value) {
		return value
	}
	switch value := value.(type) {
	case map[string]any:
		open := make(map[string]any, len(value))
		for key, field := range value {
			open[key] = maskHooks(field)
			if text, isText := field.(string); isText {
				open[key] = maskedAnnotation(key, text)
			}
		}
		return open
	case []any:
		open := make([]any, len(value))
		for i, item := range value {
			open[i] = maskHooks(item)
		}
		return open
	default:
		return value
	}
}

// hasHooks reports whether a value has hooks within it that hold something to mask.
func hasHooks(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if text, isText := field.(string); isText && maskedAnnotation(key, text) != text || hasHooks(field) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, hasHooks)
	}
	return false
}

// maskedAnnotation returns the value of an annotation without what it may have of secrets in hooks.
func maskedAnnotation(key, text string) string {
	switch {
	case key == lifecycle.Annotation:
		return lifecycle.Masked(text)
	case key == copyAnnotation && strings.Contains(text, lifecycle.Annotation):
		return masked
	default:
		return text
	}
}

// maskedChange returns a value before and after, without secrets of hooks.
func maskedChange(key string, before, after any) (maskedBefore, maskedAfter any) {
	from, wasText := before.(string)
	to, isText := after.(string)
	if wasText && isText && key == lifecycle.Annotation {
		return lifecycle.MaskedChange(from, to)
	}
	if wasText {
		before = maskedAnnotation(key, from)
	}
	if isText {
		after = maskedAnnotation(key, to)
	}
	if before == masked && after == masked {
		after = maskedOther
	}
	return maskHooks(before), maskHooks(after)
}
