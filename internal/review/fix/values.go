package fix

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/payload"
)

// This file says what the values of a manifest's annotations and labels ought to be.

// corrections are those that fix what some rules find in a document, and where something
// stands that can't be edited alone, in bytes.
func corrections(d payload.Document, rules []string) (found []correction, lost []int) {
	text := layOut(d.Text)
	take := func(c correction, ok bool) {
		if ok {
			found = append(found, c)
		} else {
			lost = append(lost, c.start)
		}
	}
	if value := deleteValue(d.Value); slices.Contains(rules, DeleteValue) && saysTrue(value) && value != "true" {
		take(text.spellDelete())
	}
	if slices.Contains(rules, Malformed) {
		for _, kind := range []string{"annotations", "labels"} {
			for _, key := range unquoted(d.Value, kind) {
				take(text.quote(kind, key))
			}
		}
	}
	return found, lost
}

// spellDelete writes the value of the delete annotation as it must be.
func (l *layout) spellDelete() (correction, bool) {
	path := []string{"metadata", "annotations", payload.DeleteAnnotation}
	at, ok := l.value(path)
	return correction{
		edit: edit{at.start, at.end, `"true"`}, rule: DeleteValue, path: path, value: "true",
		what: fmt.Sprintf(`annotation %s is "true" now, and was %s`, payload.DeleteAnnotation, l.text[at.start:at.end]),
	}, ok
}

// quote puts a value in quotes, as it is written.
func (l *layout) quote(kind, key string) (correction, bool) {
	path := []string{"metadata", kind, key}
	at, ok := l.value(path)
	written := string(l.text[at.start:at.end])
	return correction{
		edit: edit{at.start, at.end, `"` + written + `"`}, rule: Malformed, path: path, value: written,
		what: fmt.Sprintf("%s %s is %q now, in quotes", strings.TrimSuffix(kind, "s"), key, written),
	}, ok && !strings.ContainsAny(written, `"\`)
}

// entries are the annotations or labels of a document.
func entries(value any, kind string) map[string]any {
	fields, _ := value.(map[string]any)
	metadata, _ := fields["metadata"].(map[string]any)
	found, _ := metadata[kind].(map[string]any)
	return found
}

// unquoted are the keys whose values are numbers or booleans. That of the delete
// annotation is none of them: quotes might make it delete.
func unquoted(value any, kind string) []string {
	var keys []string
	all := entries(value, kind)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if kind == "annotations" && key == payload.DeleteAnnotation {
			continue
		}
		switch all[key].(type) {
		case bool, int64, float64:
			keys = append(keys, key)
		}
	}
	return keys
}

// deleteValue is the value of the delete annotation, nil if there is none.
func deleteValue(value any) any { return entries(value, "annotations")[payload.DeleteAnnotation] }

// saysTrue says whether a value is true, in whatever spelling. A number is none.
func saysTrue(value any) bool {
	switch value := value.(type) {
	case bool:
		return value
	case string:
		return strings.EqualFold(strings.TrimSpace(value), "true")
	default:
		return false
	}
}

// isTombstone says whether a document deletes its object, as Kubernetes' libraries read it.
func isTombstone(value any) bool {
	fields, _ := value.(map[string]any)
	object := unstructured.Unstructured{Object: fields}
	return fields != nil && object.GetAnnotations()[payload.DeleteAnnotation] == "true"
}
