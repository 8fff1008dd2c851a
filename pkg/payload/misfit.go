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

// A wrong field holds what it can't.
type wrong struct {
	path []string
	why  string
}

// enoughMisfits is how many are told of one object: a list may have a million.
const enoughMisfits = 20

// misfits finds the fields of a manifest that hold what they can't. The converter names
// none, so it is asked again with less and less around each: with one key of a mapping,
// one item of a list, for as long as it still complains.
func misfits(m *Manifest) []wrong {
	f := &misfitFinder{kind: m.GroupVersionKind()}
	f.find(m.object.Object, nil, func(kept any) any { return kept })
	return f.found
}

type misfitFinder struct {
	kind  schema.GroupVersionKind
	found []wrong
}

// find looks at a value, which around puts in its place in an object.
func (f *misfitFinder) find(value any, path []string, around func(any) any) {
	if len(f.found) >= enoughMisfits {
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
		f.found = append(f.found, wrong{path, why(err)})
	}
}

// refusal is what the converter says of an object; nil if it can read it.
func (f *misfitFinder) refusal(object any) error {
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
