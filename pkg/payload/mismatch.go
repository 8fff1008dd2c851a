package payload

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/runlevel/runlevel/internal/objects/fields"
)

// Misfits returns the fields of a manifest whose values have types that the fields can't have.
func (m *Manifest) Misfits() []fields.Misfit {
	return fields.Misfits(m.object.Object, func(object map[string]any) error {
		return refusal(m.GroupVersionKind(), object)
	})
}

// refusal returns the converter's error for an object of a kind; nil if it can convert it.
func refusal(kind schema.GroupVersionKind, object map[string]any) error {
	typed, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, typed, true)
	if _, isUnknown := runtime.AsStrictDecodingError(err); err == nil || isUnknown {
		return nil
	}
	text, marshalErr := json.Marshal(object)
	if marshalErr != nil {
		return err
	}
	if exact := json.Unmarshal(text, typed); exact != nil {
		return exact
	}
	return err
}

func mismatchText(err error) string {
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return " can't be of type " + wrongType.Value
	}
	return ": " + err.Error()
}

// nameOf returns a path as text, such as spec.containers[0].
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
