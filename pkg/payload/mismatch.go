package payload

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// A typeMismatch is a field whose value has a type that the field can't have.
type typeMismatch struct {
	path []string
	why  string
}

// maxMismatches is how many are reported of one object: a list may have a million.
const maxMismatches = 20

// typeMismatches returns the type mismatches of a manifest. The converter's error names no field, so smaller and
// smaller parts of the object are converted, one key of a mapping or one item of a list each, until the part that
// fails is a single field.
func typeMismatches(m *Manifest) []typeMismatch {
	f := &mismatchFinder{kind: m.GroupVersionKind()}
	f.find(m.object.Object, nil, func(kept any) any { return kept })
	return f.found
}

type mismatchFinder struct {
	kind  schema.GroupVersionKind
	found []typeMismatch
}

// find looks at a value, which around puts in its place in an object.
func (f *mismatchFinder) find(value any, path []string, around func(any) any) {
	if len(f.found) >= maxMismatches {
		return
	}
	err := f.refusal(around(value))
	if err == nil {
		return
	}
	before := len(f.found)
	at := func(step string, item any, alone func(any) any) {
		f.find(item, append(slices.Clone(path), step), func(kept any) any { return around(alone(kept)) })
	}
	switch value := value.(type) {
	case map[string]any:
		if f.refusal(around(map[string]any{})) != nil {
			break // no mapping can stand here
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			at(key, value[key], func(kept any) any { return map[string]any{key: kept} })
		}
	case []any:
		if f.refusal(around([]any{})) != nil {
			break
		}
		for i, item := range value {
			at(strconv.Itoa(i), item, func(kept any) any { return []any{kept} })
		}
	}
	if len(f.found) == before { // nothing inside alone, so it is this
		f.found = append(f.found, typeMismatch{path, why(err)})
	}
}

// refusal is what the converter says of an object; nil if it can read it.
func (f *mismatchFinder) refusal(object any) error {
	fields, isMapping := object.(map[string]any)
	if !isMapping {
		return nil
	}
	typed, err := scheme.Scheme.New(f.kind)
	if err != nil {
		return nil
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(fields, typed, true)
	if _, isUnknown := runtime.AsStrictDecodingError(err); err == nil || isUnknown {
		return nil
	}
	text, marshalErr := json.Marshal(fields)
	if marshalErr != nil {
		return err
	}
	if exact := json.Unmarshal(text, typed); exact != nil {
		return exact
	}
	return err
}

func why(err error) string {
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return " can't be of type " + wrongType.Value
	}
	return ": " + err.Error()
}

// nameOf is how people write a path.
func nameOf(path []string) string {
	var name strings.Builder
	for _, step := range path {
		if _, err := strconv.Atoi(step); err == nil {
			fmt.Fprintf(&name, "[%s]", step)
			continue
		}
		if name.Len() > 0 {
			name.WriteString(".")
		}
		name.WriteString(step)
	}
	return name.String()
}
