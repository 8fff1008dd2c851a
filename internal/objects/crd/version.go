package crd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// A version is a version of a definition.
type version struct {
	name      string
	served    bool
	hasStatus bool // status is a subresource
	scale     *apiextensionsv1.CustomResourceSubresourceScale
	keepsAll  bool // spec.preserveUnknownFields, of old definitions

	maxCost int64 // cost of the rules of one object

	properties *apiextensions.JSONSchemaProps
	structure  *structural.Structural

	// The rest is created for the first custom resource, because it is expensive and many
	// definitions have no custom resources.
	fields func() (validation.SchemaValidator, error)
	rules  func() *cel.Validator // nil if there are none
}

// newVersion reads a version's schema. It is cheap.
func newVersion(crd *apiextensionsv1.CustomResourceDefinition,
	from *apiextensionsv1.CustomResourceDefinitionVersion) (*version, error) {
	if from.Schema == nil || from.Schema.OpenAPIV3Schema == nil {
		return nil, errors.New("there is none: write schema.openAPIV3Schema")
	}
	converted := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(from.Schema,
		converted, nil); err != nil {
		return nil, err
	}
	structure, err := structural.NewStructural(converted.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	if err := defaulting.PruneDefaults(structure); err != nil {
		return nil, err
	}
	v := &version{
		name: from.Name, served: from.Served, keepsAll: crd.Spec.PreserveUnknownFields,
		maxCost:    celconfig.RuntimeCELCostBudget,
		properties: converted.OpenAPIV3Schema, structure: structure,
		fields: sync.OnceValues(func() (validation.SchemaValidator, error) {
			validator, _, err := validation.NewSchemaValidator(converted.OpenAPIV3Schema)
			return validator, err
		}),
	}
	v.rules = sync.OnceValue(func() *cel.Validator {
		return cel.NewValidator(structure, true, uint64(min(celconfig.PerCallLimit, v.maxCost)))
	})
	if from.Subresources != nil {
		v.hasStatus = from.Subresources.Status != nil
		v.scale = from.Subresources.Scale
	}
	return v, nil
}

// validate checks a prepared object in the order of the API server's create, or of its update if before is not nil: an
// update ignores errors of unchanged fields.
func (v *version) validate(ctx context.Context, before, after map[string]any, report *report) {
	fields, err := v.fields()
	if err != nil {
		report.add(field.Invalid(field.NewPath("apiVersion"), nil, "its schema can't be used: "+err.Error()))
		return
	}
	var found field.ErrorList
	var old any
	var options []cel.Option
	if before == nil {
		found = append(found, validation.ValidateCustomResource(nil, after, fields)...)
	} else {
		both := common.NewCorrelatedObject(after, before, &model.Structural{Structural: v.structure})
		found = append(found, validation.ValidateCustomResourceUpdate(nil, after, before, fields,
			validation.WithRatcheting(both))...)
		old, options = before, []cel.Option{cel.WithRatcheting(both)}
	}
	found = append(found, v.validateScale(after)...)
	found = append(found, objectmeta.Validate(ctx, nil, after, v.structure, false)...)
	if before == nil || len(listtype.ValidateListSetsAndMaps(nil, v.structure, before)) == 0 {
		found = append(found, listtype.ValidateListSetsAndMaps(nil, v.structure, after)...)
	}
	report.add(found...)
	if blocksRules(found) {
		return
	}
	if rules := v.rules(); rules != nil {
		broken, budget := rules.Validate(ctx, nil, v.structure, after, old, v.maxCost, options...)
		report.addRules(broken, budget < 0 && v.maxCost < celconfig.RuntimeCELCostBudget)
	}
}

// blocksRules reports whether an object has errors because of which the API server
// does not evaluate its rules.
func blocksRules(found field.ErrorList) bool {
	for _, err := range found {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany,
			field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}

// validateScale checks the fields that the scale subresource reads. The API server's
// own code for it can't be used without its storage.
func (v *version) validateScale(object map[string]any) field.ErrorList {
	if v.scale == nil {
		return nil
	}
	found := replicas(object, v.scale.SpecReplicasPath)
	found = append(found, replicas(object, v.scale.StatusReplicasPath)...)
	if v.scale.LabelSelectorPath != nil {
		path := strings.TrimPrefix(*v.scale.LabelSelectorPath, ".")
		if _, _, err := unstructured.NestedString(object, strings.Split(path, ".")...); err != nil {
			found = append(found, field.Invalid(field.NewPath(path), nil,
				"must be a string, because the scale subresource reads it"))
		}
	}
	return found
}

func replicas(object map[string]any, path string) field.ErrorList {
	path = strings.TrimPrefix(path, ".")
	count, _, err := unstructured.NestedInt64(object, strings.Split(path, ".")...)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(field.NewPath(path), nil,
			"must be an integer, because the scale subresource reads it")}
	case count < 0:
		return field.ErrorList{field.Invalid(field.NewPath(path), count, "must not be negative")}
	case count > math.MaxInt32:
		return field.ErrorList{field.Invalid(field.NewPath(path), count,
			fmt.Sprintf("must be at most %d", math.MaxInt32))}
	default:
		return nil
	}
}

// CountRules returns the number of CEL rules of a CustomResourceDefinition. Compiling a rule takes about a
// millisecond.
func CountRules(definition any) int {
	count := 0
	switch value := definition.(type) {
	case map[string]any:
		for key, inside := range value {
			if rules, isList := inside.([]any); isList && key == "x-kubernetes-validations" {
				count += len(rules)
			} else {
				count += CountRules(inside)
			}
		}
	case []any:
		for _, item := range value {
			count += CountRules(item)
		}
	}
	return count
}
