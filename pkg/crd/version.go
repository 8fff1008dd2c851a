package crd

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

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

	maxCost int64 // of the rules of one object

	properties *apiextensions.JSONSchemaProps
	structure  *structural.Structural

	// The rest is made when custom resources ask for it, because it is expensive and many
	// definitions have none.
	fields   func() (validation.SchemaValidator, error)
	allRules func() *cel.Validator        // nil if there are none
	bare     func() structural.Structural // the structure without its rules
	checked  atomic.Int32                 // how many objects were
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
		name: from.Name, served: from.Served, keepsAll: crd.Spec.PreserveUnknownFields, maxCost: celconfig.RuntimeCELCostBudget,
		properties: converted.OpenAPIV3Schema, structure: structure,
		fields: sync.OnceValues(func() (validation.SchemaValidator, error) {
			validator, _, err := validation.NewSchemaValidator(converted.OpenAPIV3Schema)
			return validator, err
		}),
		bare: sync.OnceValue(func() structural.Structural { return withoutRules(structure) }),
	}
	v.allRules = sync.OnceValue(func() *cel.Validator { return v.newRules(structure) })
	if from.Subresources != nil {
		v.hasStatus = from.Subresources.Status != nil
		v.scale = from.Subresources.Scale
	}
	return v, nil
}

// compile makes the validator of fields, and reports if that fails.
func (v *version) compile(report *report) (validation.SchemaValidator, bool) {
	validator, err := v.fields()
	if err != nil {
		report.add(field.Invalid(field.NewPath("apiVersion"), nil, "its schema can't be used: "+err.Error()))
	}
	return validator, err == nil
}

// validate looks at a prepared object in the order of the API server's create.
func (v *version) validate(ctx context.Context, object map[string]any, report *report) {
	fields, ok := v.compile(report)
	if !ok {
		return
	}
	var found field.ErrorList
	found = append(found, validation.ValidateCustomResource(nil, object, fields)...)
	found = append(found, v.validateScale(object)...)
	found = append(found, objectmeta.Validate(nil, object, v.structure, false)...)
	found = append(found, listtype.ValidateListSetsAndMaps(nil, v.structure, object)...)
	report.add(found...)
	if blocksRules(found) {
		return
	}
	if rules := v.rulesFor(object); rules != nil {
		broken, left := rules.Validate(ctx, nil, v.structure, object, nil, v.maxCost)
		report.addRules(broken, left < 0 && v.maxCost < celconfig.RuntimeCELCostBudget)
	}
}

// validateUpdate is the same for an update, which forgives what it leaves alone.
func (v *version) validateUpdate(ctx context.Context, before, after map[string]any, report *report) {
	fields, ok := v.compile(report)
	if !ok {
		return
	}
	both := common.NewCorrelatedObject(after, before, &model.Structural{Structural: v.structure})
	var found field.ErrorList
	found = append(found, validation.ValidateCustomResourceUpdate(nil, after, before, fields, validation.WithRatcheting(both))...)
	found = append(found, v.validateScale(after)...)
	found = append(found, objectmeta.Validate(nil, after, v.structure, false)...)
	if len(listtype.ValidateListSetsAndMaps(nil, v.structure, before)) == 0 {
		found = append(found, listtype.ValidateListSetsAndMaps(nil, v.structure, after)...)
	}
	report.add(found...)
	if blocksRules(found) {
		return
	}
	if rules := v.rulesFor(after); rules != nil {
		broken, left := rules.Validate(ctx, nil, v.structure, after, before, v.maxCost, cel.WithRatcheting(both))
		report.addRules(broken, left < 0 && v.maxCost < celconfig.RuntimeCELCostBudget)
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
