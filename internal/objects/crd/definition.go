package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/runlevel/runlevel/internal/objects/fields"
)

// The apiVersion and the kind of a definition.
const (
	definitionVersion = "apiextensions.k8s.io/v1"
	definitionKind    = "CustomResourceDefinition"
)

// CheckDefinition returns the problems for which the API server would refuse to create a
// CustomResourceDefinition.
func CheckDefinition(ctx context.Context, object map[string]any) []Problem {
	crd, problems := decode(object)
	if crd == nil {
		return problems
	}
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd,
		internal, nil); err != nil {
		return append(problems, Problem{Message: oneLine("the definition can't be converted: " + err.Error())})
	}
	prepareForCreate(internal)
	found := validation.ValidateCustomResourceDefinition(ctx, internal)
	report := &report{object: object, found: problems}
	for _, err := range withoutConsequences(found) {
		err.Field = manifestField(err.Field)
		report.add(err)
	}
	return report.problems()
}

// prepareForCreate prepares a definition as the API server does before it validates: it clears the
// namespace and resets the status.
func prepareForCreate(crd *apiextensions.CustomResourceDefinition) {
	crd.Namespace = ""
	crd.Status = apiextensions.CustomResourceDefinitionStatus{}
	for _, version := range crd.Spec.Versions {
		if version.Storage {
			crd.Status.StoredVersions = []string{version.Name}
			return
		}
	}
}

// withoutConsequences leaves out errors that only follow from others: those of status, which manifests do not write,
// and those of rules that only add to the cost of a schema, if another rule is too expensive by itself. (The API
// server names any four rules that cost the same.)
func withoutConsequences(found field.ErrorList) field.ErrorList {
	isTooExpensive := slices.ContainsFunc(found, func(err *field.Error) bool {
		return strings.HasPrefix(err.Detail, "estimated rule cost exceeds budget")
	})
	causes := slices.DeleteFunc(slices.Clone(found), func(err *field.Error) bool {
		return strings.HasPrefix(err.Field, "status.") ||
			isTooExpensive && strings.HasPrefix(err.Detail, "contributed to estimated rule cost total")
	})
	if len(causes) == 0 {
		return found
	}
	return causes
}

// manifestField converts a field name of the API server's internal type, which has fields
// that all versions share at the top, into the name in the manifest.
func manifestField(name string) string {
	for _, moved := range [][2]string{
		{"spec.validation", "spec.versions[0].schema"},
		{"spec.subresources", "spec.versions[0].subresources"},
		{"spec.additionalPrinterColumns", "spec.versions[0].additionalPrinterColumns"},
		{"spec.selectableFields", "spec.versions[0].selectableFields"},
		{"spec.version", "spec.versions[0].name"},
		{"spec.conversion.webhookClientConfig", "spec.conversion.webhook.clientConfig"},
		{"spec.conversion.conversionReviewVersions", "spec.conversion.webhook.conversionReviewVersions"},
	} {
		if rest, ok := strings.CutPrefix(name, moved[0]); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return moved[1] + rest
		}
	}
	return name
}

// decode reads a definition the way the API server reads a request, with its
// defaults. It is nil if it can't be read; otherwise the problems are unknown fields.
func decode(object map[string]any) (*apiextensionsv1.CustomResourceDefinition, []Problem) {
	if problem := notADefinition(object); problem != nil {
		return nil, []Problem{*problem}
	}
	crd, unknown, err := unmarshal(object)
	if err != nil {
		return nil, []Problem{misfit(object, func(part map[string]any) error {
			_, _, err := unmarshal(part)
			return err
		})}
	}
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(crd)
	report := &report{object: object}
	for _, err := range unknown {
		var known kjson.FieldError
		if errors.As(err, &known) {
			report.unknown(known.FieldPath())
		}
	}
	return crd, report.problems()
}

// unmarshal reads a definition, and returns an error for each field that definitions don't have.
func unmarshal(object map[string]any) (crd *apiextensionsv1.CustomResourceDefinition, unknown []error, err error) {
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, nil, err
	}
	crd = &apiextensionsv1.CustomResourceDefinition{}
	unknown, err = kjson.UnmarshalStrict(encoded, crd)
	return crd, unknown, err
}

func notADefinition(object map[string]any) *Problem {
	kind, _ := object["kind"].(string)
	if kind != definitionKind {
		return &Problem{
			Path:    []string{"kind"},
			Message: fmt.Sprintf("kind: must be %s, not %s", definitionKind, show(object["kind"])),
		}
	}
	if version, _ := object["apiVersion"].(string); version != definitionVersion {
		return &Problem{
			Path: []string{"apiVersion"},
			Message: fmt.Sprintf("apiVersion: %s is not served: write %s", show(object["apiVersion"]),
				definitionVersion),
		}
	}
	return nil
}

// misfit returns the problem of an object that doesn't fit Go's type for it.
func misfit(object map[string]any, read func(map[string]any) error) Problem {
	found := fields.Misfits(object, read)[0]
	var wrong *json.UnmarshalTypeError
	if !errors.As(found.Err, &wrong) {
		return Problem{
			Path:    found.Path,
			Message: oneLine(strings.TrimSpace(nameOf(object, found.Path) + " can't be read: " + found.Err.Error())),
		}
	}
	kind, _, _ := strings.Cut(wrong.Value, " ") // "number 1.5"
	return Problem{Path: found.Path, Message: oneLine(nameOf(object, found.Path) + ": can't be " + article(kind))}
}

// article returns a JSON type with its article.
func article(kind string) string {
	switch kind {
	case "array":
		return "a list"
	case "object":
		return "a mapping"
	case "bool":
		return "true or false"
	default:
		return "a " + kind
	}
}

// nameOf returns a path as people write it.
func nameOf(object any, path []string) string {
	name := ""
	for _, key := range path {
		var isList bool
		object, isList = child(object, key)
		name = join(name, key, isList)
	}
	return name
}

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
