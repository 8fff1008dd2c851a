package crd

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	kjson "sigs.k8s.io/json"
)

// prepare returns a copy of a custom resource as the API server has it before it
// validates: without unknown fields, which it reports, and with defaults. It is nil
// if the object can't be read.
func (v *version) prepare(object map[string]any) (map[string]any, *report) {
	report := &report{object: object}
	after, err := decodeJSON(object)
	if err != nil {
		report.found = append(report.found,
			Problem{Message: oneLine("the object can't be written as JSON: " + err.Error())})
		return nil, report
	}
	report.secrets = secrets(nil, after, v.properties)

	options := objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true}
	meta, hasMeta, unknown, err := objectmeta.GetObjectMetaWithOptions(after, options)
	if err != nil {
		report.found = append(report.found, misfit(after, func(part map[string]any) error {
			_, _, _, err := objectmeta.GetObjectMetaWithOptions(part, options)
			return err
		}))
		return nil, report
	}
	report.unknown(unknown...)
	if !v.prune(after, report) {
		return nil, report
	}
	if hasMeta {
		name(meta)
		if err := objectmeta.SetObjectMeta(after, meta); err != nil {
			report.found = append(report.found,
				Problem{Path: []string{"metadata"}, Message: oneLine("metadata: " + err.Error())})
			return nil, report
		}
	}
	defaulting.Default(after, v.structure)
	return after, report
}

// prune drops fields that the schema doesn't have, in embedded objects too. It reports
// whether the embedded objects can be read.
func (v *version) prune(object map[string]any, report *report) bool {
	if !v.keepsAll {
		report.unknown(pruning.PruneWithOptions(object, v.structure, true,
			structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
		defaulting.PruneNonNullableNullsWithoutDefaults(object, v.structure)
	}
	wrong, unknown := objectmeta.CoerceWithOptions(nil, object, v.structure, false,
		objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	report.unknown(unknown...)
	if wrong != nil {
		report.add(wrong)
	}
	return wrong == nil
}

// name gives an object a name as the API server generates them, because rules may
// refer to it.
func name(meta *metav1.ObjectMeta) {
	const longest, random = 63, "xxxxx"
	if meta.Name == "" && meta.GenerateName != "" {
		meta.Name = meta.GenerateName[:min(len(meta.GenerateName), longest-len(random))] + random
	}
}

// decodeJSON returns a copy of an object as decoded from JSON, where a number without a fraction is an integer, even if
// it is written as 1.0.
func decodeJSON(object map[string]any) (map[string]any, error) {
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var copied map[string]any
	err = kjson.UnmarshalCaseSensitivePreserveInts(encoded, &copied)
	return copied, err
}
