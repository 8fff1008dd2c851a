package crd

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
)

// password is the format of values that must not be shown.
const password = "password"

// secrets adds to found the values of an object that have the format password in its
// schema, in any of several alternatives, whether it applies or not.
func secrets(found []string, value any, schema *apiextensions.JSONSchemaProps) []string {
	if schema == nil || value == nil {
		return found
	}
	if schema.Format == password {
		return scalars(found, value)
	}
	for _, alternatives := range [][]apiextensions.JSONSchemaProps{schema.AllOf, schema.AnyOf, schema.OneOf} {
		for i := range alternatives {
			found = secrets(found, value, &alternatives[i])
		}
	}
	found = secrets(found, value, schema.Not)
	switch value := value.(type) {
	case map[string]any:
		for key, item := range value {
			if property, ok := schema.Properties[key]; ok {
				found = secrets(found, item, &property)
			} else if schema.AdditionalProperties != nil {
				found = secrets(found, item, schema.AdditionalProperties.Schema)
			}
		}
	case []any:
		for _, item := range value {
			if schema.Items != nil {
				found = secrets(found, item, schema.Items.Schema)
			}
		}
	}
	return found
}

// scalars adds all values in the place of a password, of any type.
func scalars(found []string, value any) []string {
	switch value := value.(type) {
	case map[string]any:
		for _, item := range value {
			found = scalars(found, item)
		}
	case []any:
		for _, item := range value {
			found = scalars(found, item)
		}
	case nil:
	default:
		if text := fmt.Sprint(value); text != "" {
			found = append(found, text)
		}
	}
	return found
}
