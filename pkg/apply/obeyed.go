package apply

import (
	"fmt"
	"reflect"
	"slices"

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
