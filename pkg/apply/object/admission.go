package object

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// mutated returns the fields of an object that are not as they were sent: admission, a mutating policy or a webhook,
// has changed them, and leaves no trace when it is gone. Of the metadata only labels and annotations count, and the
// status does not, which controllers write. A field ends in "?" that the server may only have written in its own way:
// it has another type, is absent, or is a list.
func mutated(live, sent *unstructured.Unstructured) []string {
	var found []string
	for field, value := range sent.Object {
		switch field {
		case "apiVersion", "kind", "status":
		case "metadata":
			for _, part := range []string{"labels", "annotations"} {
				there, _, _ := unstructured.NestedFieldNoCopy(live.Object, field, part)
				wanted, _, _ := unstructured.NestedFieldNoCopy(sent.Object, field, part)
				found = append(found, differences("."+field+"."+part, there, wanted)...)
			}
		default:
			found = append(found, differences("."+field, live.Object[field], value)...)
		}
	}
	slices.Sort(found)
	return found
}

// differences returns the fields in which a value has not all that was sent. Lists may have more items, in another
// order, and servers leave out what is false, zero or empty.
func differences(path string, there, sent any) []string {
	var found []string
	switch sent := sent.(type) {
	case map[string]any:
		fields, isMapping := there.(map[string]any)
		if !isMapping && (there != nil || len(sent) > 0) {
			return []string{path + "?"}
		}
		for name, value := range sent {
			found = append(found, differences(path+"."+name, fields[name], value)...)
		}
	case []any:
		items, isList := there.([]any)
		isMissing := func(item any) bool {
			return !slices.ContainsFunc(items, func(other any) bool { return len(differences("", other, item)) == 0 })
		}
		if !isList && there != nil || slices.ContainsFunc(sent, isMissing) {
			return []string{path + "?"}
		}
	default:
		if isSameValue(there, sent) {
			return nil
		}
		if reflect.TypeOf(number(there)) != reflect.TypeOf(number(sent)) {
			path += "?"
		}
		return []string{path}
	}
	return found
}

// isSameValue reports whether a value is the one that was sent, written in another way at most.
func isSameValue(there, sent any) bool {
	if sent == nil || number(there) == number(sent) || there == nil && reflect.ValueOf(sent).IsZero() {
		return true
	}
	is, want := fmt.Sprint(there), fmt.Sprint(sent)
	if quantity, err := resource.ParseQuantity(is); err == nil {
		other, err := resource.ParseQuantity(want)
		return err == nil && quantity.Cmp(other) == 0
	}
	if duration, err := time.ParseDuration(is); err == nil {
		other, err := time.ParseDuration(want)
		return err == nil && duration == other
	}
	item, err := time.Parse(time.RFC3339, is)
	other, otherErr := time.Parse(time.RFC3339, want)
	return err == nil && otherErr == nil && item.Equal(other)
}

// number returns a value as it is compared: whole numbers are read as either kind.
func number(value any) any {
	if whole, isWhole := value.(int64); isWhole {
		return float64(whole)
	}
	return value
}

// warnOfAdmission warns of fields that admission has changed: no apply can change them back, so each would find them
// again.
func (w writer) warnOfAdmission(o *liveObject, sent, now *unstructured.Unstructured) {
	if holdsSecrets(o.Manifest) {
		return
	}
	for _, field := range mutated(now, sent) {
		if !strings.HasSuffix(field, "?") {
			w.handler.Warned(o.Manifest, []string{"admission makes " + field + " something else than in the manifest: a mutating policy or webhook does that"})
		}
	}
}
