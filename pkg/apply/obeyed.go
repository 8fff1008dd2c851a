package apply

import (
	"encoding/base64"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// obeys says whether an object has what was sent to make it so. Admission may have made
// something else of it, and leaves no trace when it is gone. What the server only writes in
// another way, a quantity for example, counts as something else, too: that costs a request.
func obeys(live, sent *unstructured.Unstructured) bool {
	for field, value := range sent.Object {
		switch field {
		case "apiVersion", "kind", "status": // the status is for others to say
		case "metadata": // which our entry and its fingerprint are about
		case "stringData":
			if !holds(live.Object["data"], encoded(value)) {
				return false
			}
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
		return number(there) == number(wanted) || there == nil && reflect.ValueOf(wanted).IsZero()
	}
}

// number is a value as it is compared: whole numbers are read as either kind.
func number(value any) any {
	if whole, isWhole := value.(int64); isWhole {
		return float64(whole)
	}
	return value
}

// encoded are texts as a Secret holds them.
func encoded(texts any) map[string]any {
	data := map[string]any{}
	fields, _ := texts.(map[string]any)
	for name, text := range fields {
		text, _ := text.(string)
		data[name] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	return data
}
