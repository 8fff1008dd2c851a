package plan

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A DefinitionChange contains the changes that affect the objects of a CustomResourceDefinition.
type DefinitionChange struct {
	Removed  []string `json:"removedVersions,omitempty"`
	Unserved []string `json:"unservedVersions,omitempty"` // the versions remain, and are no longer served
	Storage  *Storage `json:"storage,omitempty"`
	// RemovedFields are no longer in the schema, so their values are lost.
	RemovedFields []Field `json:"removedFields,omitempty"`
	// RequiredFields are newly required, and have no default.
	RequiredFields []Field `json:"requiredFields,omitempty"`
	// NarrowedFields allow fewer values or another type.
	NarrowedFields []Narrowing `json:"narrowedFields,omitempty"`
}

// A Storage is the version in which objects are stored.
type Storage struct {
	Old string `json:"old"`
	New string `json:"new"`
}

// A Field is a field of a version's schema.
type Field struct {
	Version string `json:"version"`
	Path    string `json:"path"` // spec.list[*].key, or spec.mapping.*.key
}

// isStored reports whether objects were stored in a version.
func (d *DefinitionChange) isStored(version string) bool {
	return d.Storage != nil && d.Storage.Old == version
}

// compareDefinitions returns the changes that affect the objects of a definition; nil if
// there are none.
func compareDefinitions(oldDefinition, newDefinition map[string]any) *DefinitionChange {
	old, next := versionsOf(oldDefinition), versionsOf(newDefinition)
	d := &DefinitionChange{}
	for _, name := range old.names {
		before, after := old.byName[name], next.byName[name]
		switch {
		case after == nil:
			d.Removed = append(d.Removed, name)
			continue
		case before["served"] == true && after["served"] != true:
			d.Unserved = append(d.Unserved, name)
		}
		w := schemaWalk{definition: d, version: name, prunes: prunes(newDefinition)}
		w.compare("", schemaOf(before), schemaOf(after))
	}
	if old.storage != "" && next.storage != "" && old.storage != next.storage {
		d.Storage = &Storage{Old: old.storage, New: next.storage}
	}
	if reflect.DeepEqual(d, &DefinitionChange{}) {
		return nil
	}
	return d
}

// versions are the versions of a CustomResourceDefinition.
type versions struct {
	names   []string
	byName  map[string]map[string]any
	storage string
}

func versionsOf(definition map[string]any) versions {
	found := versions{byName: map[string]map[string]any{}}
	list, _, _ := unstructured.NestedFieldNoCopy(definition, "spec", "versions")
	items, _ := list.([]any)
	shared, _, _ := unstructured.NestedFieldNoCopy(definition, "spec", "validation") // schema of v1beta1
	if only, _, _ := unstructured.NestedString(definition, "spec", "version"); only != "" && len(items) == 0 {
		items = []any{map[string]any{"name": only, "served": true, "storage": true}}
	}
	for _, item := range items {
		fields, _ := item.(map[string]any)
		name, isNamed := fields["name"].(string)
		if !isNamed {
			continue
		}
		if fields["schema"] == nil && shared != nil {
			fields = maps.Clone(fields)
			fields["schema"] = shared
		}
		found.names = append(found.names, name)
		found.byName[name] = fields
		if fields["storage"] == true {
			found.storage = name
		}
	}
	return found
}

func schemaOf(version map[string]any) map[string]any {
	schema, _, _ := unstructured.NestedFieldNoCopy(version, "schema", "openAPIV3Schema")
	fields, _ := schema.(map[string]any)
	return fields
}

// A schemaWalk compares two schemas of a version.
type schemaWalk struct {
	definition *DefinitionChange
	version    string
	prunes     bool // fields that are in no schema are lost
}

// prunes reports whether the API server drops fields that the schema does not have: always in v1,
// and in v1beta1 if preserveUnknownFields is false.
func prunes(definition map[string]any) bool {
	keeps, isSet, _ := unstructured.NestedBool(definition, "spec", "preserveUnknownFields")
	return isSet && !keeps || !isSet && definition["apiVersion"] != "apiextensions.k8s.io/v1beta1"
}

// keepsAll reports whether a schema allows any fields.
func keepsAll(schema map[string]any) bool {
	return schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"] != nil
}

func (w *schemaWalk) compare(path string, before, after map[string]any) {
	if before == nil || after == nil {
		return
	}
	w.compareValues(path, before, after)
	oldProperties, _ := before["properties"].(map[string]any)
	newProperties, _ := after["properties"].(map[string]any)
	loses := w.prunes && !keepsAll(after)
	if loses && keepsAll(before) {
		w.definition.RemovedFields = append(w.definition.RemovedFields, Field{w.version, path + ".*"})
	}
	for _, name := range slices.Sorted(maps.Keys(oldProperties)) {
		old, _ := oldProperties[name].(map[string]any)
		next, stays := newProperties[name].(map[string]any)
		if !stays && loses {
			w.definition.RemovedFields = append(w.definition.RemovedFields, Field{w.version, join(path, name)})
		}
		w.compare(join(path, name), old, next)
	}
	w.compareRequired(path, before, after)
	w.compareBelow(path+"[*]", "items", before, after)
	w.compareBelow(path+".*", "additionalProperties", before, after)
}

// compareBelow compares the schemas of the items of a list, or of the values of a mapping.
func (w *schemaWalk) compareBelow(path, key string, before, after map[string]any) {
	oldSchema, _ := before[key].(map[string]any)
	newSchema, _ := after[key].(map[string]any)
	w.compare(path, oldSchema, newSchema)
}

// compareRequired finds fields that old objects may lack.
func (w *schemaWalk) compareRequired(path string, before, after map[string]any) {
	oldNames, _ := before["required"].([]any)
	newNames, _ := after["required"].([]any)
	properties, _ := after["properties"].(map[string]any)
	known := make(map[any]bool, len(oldNames))
	for _, name := range oldNames {
		if text, isText := name.(string); isText {
			known[text] = true
		}
	}
	for _, required := range newNames {
		name, isText := required.(string)
		property, _ := properties[name].(map[string]any)
		if isText && !known[name] && property["default"] == nil {
			w.definition.RequiredFields = append(w.definition.RequiredFields, Field{w.version, join(path, name)})
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return fmt.Sprintf("%s.%s", path, name)
}

// A Narrowing is a field that allows fewer values or another type.
type Narrowing struct {
	Field
	How string `json:"how"` // "integer, and was string"
}

// compareValues compares the type of a field, and its enum. It ignores all other
// validation.
func (w *schemaWalk) compareValues(path string, before, after map[string]any) {
	if path == "" {
		return // the root is always an object
	}
	narrow := func(format string, args ...any) {
		w.definition.NarrowedFields = append(w.definition.NarrowedFields,
			Narrowing{Field{w.version, path}, fmt.Sprintf(format, args...)})
	}
	oldType, newType := typeOf(before), typeOf(after)
	if oldType != "" && newType != "" && oldType != newType && !slices.Contains(wider[oldType], newType) {
		narrow("%s, and was %s", newType, oldType)
	}
	listed, isListed := after["enum"].([]any)
	old, wasListed := before["enum"].([]any)
	switch {
	case isListed && !wasListed:
		narrow("one of a list, and was any %s", oldType)
	case isListed:
		var deletions []string
		for _, value := range old {
			if !slices.ContainsFunc(listed, func(v any) bool { return reflect.DeepEqual(v, value) }) {
				deletions = append(deletions, fmt.Sprint(value))
			}
		}
		if len(deletions) > 0 {
			narrow("not %s any more", strings.Join(deletions, " or "))
		}
	}
}

// eitherType stands for a schema with x-kubernetes-int-or-string.
const eitherType = "integer or string"

// wider are the types that allow all values of a type.
var wider = map[string][]string{"integer": {"number", eitherType}, "string": {eitherType}}

// typeOf returns the type of a field; "" if the schema has none.
func typeOf(schema map[string]any) string {
	if schema["x-kubernetes-int-or-string"] == true {
		return eitherType
	}
	name, _ := schema["type"].(string)
	return name
}
