package object

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// obeys says whether an object has what was sent to make it so. Admission may have made
// something else of it, and leaves no trace when it is gone. What the server only writes in
// another way, a time for example, counts as something else, too: that costs a request.
func obeys(live, sent *unstructured.Unstructured) bool {
	for field, value := range sent.Object {
		switch field {
		case "apiVersion", "kind", "status": // the status is for others to say
		case "metadata": // which our entry and its fingerprint are about
		default:
			if !holds(live.Object[field], value) {
				return false
			}
		}
	}
	return true
}

// mutated returns the fields that have another value than the one that was sent: admission, a mutating
// policy or a webhook, has changed them. Fields of list items, and values that a server may only write
// in its own way, are left out.
func mutated(path string, live, sent map[string]any) []string {
	var found []string
	for name, wanted := range sent {
		at := path + "." + name
		switch wanted := wanted.(type) {
		case map[string]any:
			if there, isMapping := live[name].(map[string]any); isMapping && at != ".status" {
				found = append(found, mutated(at, there, wanted)...)
			}
		case string:
			if there, isText := live[name].(string); isText && there != wanted && !isSameText(there, wanted) {
				found = append(found, at)
			}
		case bool, int64, float64:
			if there := live[name]; there != nil && reflect.TypeOf(number(there)) == reflect.TypeOf(number(wanted)) && number(there) != number(wanted) {
				found = append(found, at)
			}
		}
	}
	slices.Sort(found)
	return found
}

// isSameText says whether a server has only written a quantity, a duration or a time in its own way.
func isSameText(there, wanted string) bool {
	if is, err := time.ParseDuration(there); err == nil {
		want, err := time.ParseDuration(wanted)
		return err == nil && is == want
	}
	if is, err := time.Parse(time.RFC3339, there); err == nil {
		want, err := time.Parse(time.RFC3339, wanted)
		return err == nil && is.Equal(want)
	}
	return isSameQuantity(there, wanted)
}

// holds says whether a value has all that another one has. Lists may have more items, in
// another order; and servers leave out what is false, zero or empty.
func holds(there, wanted any) bool {
	switch wanted := wanted.(type) {
	case nil:
		return true
	case map[string]any:
		fields, isMapping := there.(map[string]any)
		if !isMapping {
			return there == nil && len(wanted) == 0
		}
		for name, value := range wanted {
			if !holds(fields[name], value) {
				return false
			}
		}
		return true
	case []any:
		items, isList := there.([]any)
		return (isList || there == nil) && !slices.ContainsFunc(wanted, func(item any) bool {
			return !slices.ContainsFunc(items, func(other any) bool { return holds(other, item) })
		})
	default:
		return number(there) == number(wanted) || there == nil && reflect.ValueOf(wanted).IsZero() || isSameQuantity(there, wanted)
	}
}

// number is a value as it is compared: whole numbers are read as either kind.
func number(value any) any {
	if whole, isWhole := value.(int64); isWhole {
		return float64(whole)
	}
	return value
}

// isSameQuantity says whether a server has only written a quantity in its own way.
func isSameQuantity(there, wanted any) bool {
	is, err := resource.ParseQuantity(fmt.Sprint(there))
	if err != nil {
		return false
	}
	want, err := resource.ParseQuantity(fmt.Sprint(wanted))
	return err == nil && is.Cmp(want) == 0
}
