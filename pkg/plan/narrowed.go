package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A Narrowing is a field that has to be something else now, or fewer things.
type Narrowing struct {
	Field
	How string `json:"how"` // "integer, and was string"
}

// compareValues looks at what a field may be: its type, and the values that are listed.
// What else may forbid a value is not looked at.
func (w *schemaWalk) compareValues(path string, before, after map[string]any) {
	if path == "" {
		return // an object is one
	}
	narrow := func(format string, args ...any) {
		w.definition.NarrowedFields = append(w.definition.NarrowedFields, Narrowing{Field{w.version, path}, fmt.Sprintf(format, args...)})
	}
	was, is := typeOf(before), typeOf(after)
	if was != "" && is != "" && was != is && !slices.Contains(wider[was], is) {
		narrow("%s, and was %s", is, was)
	}
	listed, isListed := after["enum"].([]any)
	old, wasListed := before["enum"].([]any)
	switch {
	case isListed && !wasListed:
		narrow("one of a list, and was any %s", was)
	case isListed:
		var gone []string
		for _, value := range old {
			if !slices.ContainsFunc(listed, func(v any) bool { return reflect.DeepEqual(v, value) }) {
				gone = append(gone, fmt.Sprint(value))
			}
		}
		if len(gone) > 0 {
			narrow("not %s any more", strings.Join(gone, " or "))
		}
	}
}

// eitherType is what a schema says that allows both of these.
const eitherType = "integer or string"

// wider are the types that allow all that a type does.
var wider = map[string][]string{"integer": {"number", eitherType}, "string": {eitherType}}

// typeOf is the type of a field; "" if it is not said.
func typeOf(schema map[string]any) string {
	if schema["x-kubernetes-int-or-string"] == true {
		return eitherType
	}
	name, _ := schema["type"].(string)
	return name
}
