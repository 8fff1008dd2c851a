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

// mutatedFields returns the fields of an object that differ from the request: a mutating policy or webhook has changed
// them, and leaves no trace in the object. Of the metadata only labels and annotations are compared. The status is not,
// since controllers write it. A field ends in "?" if the server may only have converted or defaulted it: it has another
// type, is absent, or is a list.
func mutatedFields(live, sent *unstructured.Unstructured) []string {
	var changed []string
	for field, value := range sent.Object {
		switch field {
		case "apiVersion", "kind", "status":
		case "metadata":
			for _, part := range []string{"labels", "annotations"} {
				found, _, _ := unstructured.NestedFieldNoCopy(live.Object, field, part)
				wanted, _, _ := unstructured.NestedFieldNoCopy(sent.Object, field, part)
				changed = append(changed, differences("."+field+"."+part, found, wanted)...)
			}
		default:
			changed = append(changed, differences("."+field, live.Object[field], value)...)
		}
	}
	slices.Sort(changed)
	return changed
}

// differences returns the fields in which a live value lacks a part of the request. Lists may have more items, in
// another order, and servers leave out false, zero and empty values.
func differences(path string, live, sent any) (changed []string) {
	switch sent := sent.(type) {
	case map[string]any:
		fields, isMapping := live.(map[string]any)
		if !isMapping && (live != nil || len(sent) > 0) {
			return []string{path + "?"}
		}
		for name, value := range sent {
			for _, below := range differences("", fields[name], value) {
				changed = append(changed, path+"."+name+below)
			}
		}
	case []any:
		items, isList := live.([]any)
		isMissing := func(item any) bool {
			return !slices.ContainsFunc(items, func(other any) bool { return len(differences("", other, item)) == 0 })
		}
		if !isList && live != nil || slices.ContainsFunc(sent, isMissing) {
			return []string{path + "?"}
		}
	default:
		if isSameValue(live, sent) {
			return nil
		}
		if reflect.TypeOf(number(live)) != reflect.TypeOf(number(sent)) {
			path += "?"
		}
		return []string{path}
	}
	return changed
}

// isSameValue reports whether a live value is equal to the sent value, in any notation.
func isSameValue(live, sent any) bool {
	if sent == nil || number(live) == number(sent) || live == nil && reflect.ValueOf(sent).IsZero() {
		return true
	}
	current, want := fmt.Sprint(live), fmt.Sprint(sent)
	if quantity, err := resource.ParseQuantity(current); err == nil {
		other, err := resource.ParseQuantity(want)
		return err == nil && quantity.Cmp(other) == 0
	}
	if duration, err := time.ParseDuration(current); err == nil {
		other, err := time.ParseDuration(want)
		return err == nil && duration == other
	}
	currentTime, err := time.Parse(time.RFC3339, current)
	other, otherErr := time.Parse(time.RFC3339, want)
	return err == nil && otherErr == nil && currentTime.Equal(other)
}

// number returns a value for a comparison: parsers return whole numbers as int64 or float64.
func number(value any) any {
	if whole, isWhole := value.(int64); isWhole {
		return float64(whole)
	}
	return value
}

// warnOfAdmission warns of fields that admission has changed: no apply can change them back.
func (a *attempt) warnOfAdmission() {
	if holdsSecrets(a.Manifest) || a.keepsUnknown { // the present definition drops the fields of the coming one
		return
	}
	for _, field := range a.mutated {
		if !strings.HasSuffix(field, "?") {
			a.applier.handler.OnWarnings(a.Manifest,
				[]string{"admission makes " + field +
					" something else than in the manifest: a mutating policy or webhook does that"})
		}
	}
}
