package crd

import (
	"context"
	"errors"
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
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// A version is one of a definition.
type version struct {
	name      string
	served    bool
	hasStatus bool // status is a subresource
	scale     *apiextensionsv1.CustomResourceSubresourceScale
	keepsAll  bool // unknown fields are kept, as only definitions of old may say

	properties *apiextensions.JSONSchemaProps
	structure  *structural.Structural

	// The rest is made for the first custom resource, because it is expensive and many
	// definitions have none.
	once    sync.Once
	fields  validation.SchemaValidator
	rules   *cel.Validator // nil if there are none
	failure error
}

// newVersion reads a version's schema, which is cheap.
func newVersion(crd *apiextensionsv1.CustomResourceDefinition, from *apiextensionsv1.CustomResourceDefinitionVersion) (*version, error) {
	if from.Schema == nil || from.Schema.OpenAPIV3Schema == nil {
		return nil, errors.New("there is none: write schema.openAPIV3Schema")
	}
	converted := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(from.Schema, converted, nil); err != nil {
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
		properties: converted.OpenAPIV3Schema, structure: structure,
	}
	if from.Subresources != nil {
		v.hasStatus = from.Subresources.Status != nil
		v.scale = from.Subresources.Scale
	}
	return v, nil
}

// compile makes the validators, and reports if that fails. Of rules that can't be
// compiled their validator tells itself.
func (v *version) compile(report *report) bool {
	v.once.Do(func() {
		v.fields, _, v.failure = validation.NewSchemaValidator(v.properties)
		v.rules = cel.NewValidator(v.structure, true, celconfig.PerCallLimit)
	})
	if v.failure != nil {
		report.add(field.Invalid(field.NewPath("apiVersion"), nil, "its schema can't be used: "+v.failure.Error()))
	}
	return v.failure == nil
}

// validate looks at a prepared object in the order of the API server's create.
func (v *version) validate(ctx context.Context, object map[string]any, report *report) {
	if !v.compile(report) {
		return
	}
	var found field.ErrorList
	found = append(found, validation.ValidateCustomResource(nil, object, v.fields)...)
	found = append(found, v.validateScale(object)...)
	found = append(found, objectmeta.Validate(nil, object, v.structure, false)...)
	found = append(found, listtype.ValidateListSetsAndMaps(nil, v.structure, object)...)
	report.add(found...)
	if v.rules != nil && !blocksRules(found) {
		broken, _ := v.rules.Validate(ctx, nil, v.structure, object, nil, celconfig.RuntimeCELCostBudget)
		report.addRules(broken)
	}
}

// validateUpdate is the same for an update, which forgives what it leaves alone.
func (v *version) validateUpdate(ctx context.Context, before, after map[string]any, report *report) {
	if !v.compile(report) {
		return
	}
	both := common.NewCorrelatedObject(after, before, &model.Structural{Structural: v.structure})
	var found field.ErrorList
	found = append(found, validation.ValidateCustomResourceUpdate(nil, after, before, v.fields, validation.WithRatcheting(both))...)
	found = append(found, v.validateScale(after)...)
	found = append(found, objectmeta.Validate(nil, after, v.structure, false)...)
	if len(listtype.ValidateListSetsAndMaps(nil, v.structure, before)) == 0 {
		found = append(found, listtype.ValidateListSetsAndMaps(nil, v.structure, after)...)
	}
	report.add(found...)
	if v.rules != nil && !blocksRules(found) {
		broken, _ := v.rules.Validate(ctx, nil, v.structure, after, before, celconfig.RuntimeCELCostBudget, cel.WithRatcheting(both))
		report.addRules(broken)
	}
}

// blocksRules says whether an object is so wrong that the API server doesn't try
// its rules.
func blocksRules(found field.ErrorList) bool {
	for _, err := range found {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}
