// Package crdchange compares two states of a CustomResourceDefinition, and reports the changes that its objects and
// their clients may notice: versions and fields that are lost, and fields that allow less than before. It is pure.
//
// It validates no objects: package crd does. Of the validation of fields, it compares types and enums.
//
// Start with Compare.
package crdchange

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Change contains the changes that affect the objects of a CustomResourceDefinition.
type Change struct {
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
	// IsDeprecated is set for removed fields whose description said so.
	IsDeprecated bool `json:"-"`
}

// isStored reports whether objects were stored in a version.
func (c *Change) isStored(version string) bool {
	return c.Storage != nil && c.Storage.Old == version
}

// Compare returns the changes that affect the objects of a definition; nil if there are none.
func Compare(oldDefinition, newDefinition map[string]any) *Change {
	old, next := versionsOf(oldDefinition), versionsOf(newDefinition)
	c := &Change{}
	for _, name := range old.names {
		before, after := old.byName[name], next.byName[name]
		switch {
		case after == nil:
			c.Removed = append(c.Removed, name)
			continue
		case before["served"] == true && after["served"] != true:
			c.Unserved = append(c.Unserved, name)
		}
		w := schemaWalk{change: c, version: name, prunes: prunes(newDefinition)}
		w.compare("", schemaOf(before), schemaOf(after))
	}
	if old.storage != "" && next.storage != "" && old.storage != next.storage {
		c.Storage = &Storage{Old: old.storage, New: next.storage}
	}
	if reflect.DeepEqual(c, &Change{}) {
		return nil
	}
	return c
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
	change  *Change
	version string
	prunes  bool // fields that are in no schema are lost
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
		w.change.RemovedFields = append(w.change.RemovedFields, Field{Version: w.version, Path: path + ".*"})
	}
	for _, name := range slices.Sorted(maps.Keys(oldProperties)) {
		old, _ := oldProperties[name].(map[string]any)
		next, stays := newProperties[name].(map[string]any)
		if !stays && loses && !isImplicit(path, name, after) {
			description, _ := old["description"].(string)
			w.change.RemovedFields = append(w.change.RemovedFields, Field{
				Version: w.version, Path: join(path, name),
				IsDeprecated: strings.Contains(strings.ToLower(description), "deprecated"),
			})
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
		if isText && !known[name] && property["default"] == nil && !isImplicit(path, name, after) {
			field := Field{Version: w.version, Path: join(path, name)}
			w.change.RequiredFields = append(w.change.RequiredFields, field)
		}
	}
}

// isImplicit reports whether every object at a path has a field, whatever its schema says.
func isImplicit(path, name string, schema map[string]any) bool {
	isObject := path == "" || schema["x-kubernetes-embedded-resource"] == true
	return isObject && (name == "apiVersion" || name == "kind" || name == "metadata")
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
		w.change.NarrowedFields = append(w.change.NarrowedFields,
			Narrowing{Field{Version: w.version, Path: path}, fmt.Sprintf(format, args...)})
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
				deletions = append(deletions, cmp.Or(printable.Line(fmt.Sprint(value)), `""`))
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

// An Effect is the effect of a change on objects or clients, in words.
type Effect struct {
	Reason  string // kind of the effect
	Message string // a sentence about the definition, which it does not name
}

// The reasons of effects. All but NewStorageVersion take something away.
const (
	VersionRemoved    = "VersionRemoved"
	FieldRemoved      = "FieldRemoved"
	FieldRequired     = "FieldRequired"
	FieldNarrowed     = "FieldNarrowed"
	NewStorageVersion = "NewStorageVersion"
)

// Effects returns the effects of the change, those that take something away first.
func (c *Change) Effects() []Effect {
	var effects []Effect
	add := func(reason, format string, args ...any) {
		effects = append(effects, Effect{reason, fmt.Sprintf(format, args...)})
	}
	for _, version := range c.Removed {
		add(VersionRemoved, "version %s is removed%s", version, c.ifStored(version))
	}
	for _, version := range c.Unserved {
		add(VersionRemoved, "version %s is not served any more", version)
	}
	if len(c.RemovedFields) > 0 {
		add(FieldRemoved, "fields that its objects may have are removed: %s", list(c.RemovedFields))
	}
	if len(c.RequiredFields) > 0 {
		add(FieldRequired, "fields that its objects may lack are required: %s", list(c.RequiredFields))
	}
	if len(c.NarrowedFields) > 0 {
		add(FieldNarrowed, "fields may not be any more what they are in its objects: %s", c.narrowings())
	}
	if c.Storage != nil && !slices.Contains(c.Removed, c.Storage.Old) {
		add(NewStorageVersion,
			"the storage version changes from %s to %s: existing objects are migrated when they are "+
				"next written", c.Storage.Old, c.Storage.New)
	}
	return effects
}

// ifStored returns a note on a removed version in which objects were stored; "" for any other version.
func (c *Change) ifStored(version string) string {
	if !c.isStored(version) {
		return ""
	}
	return ", in which objects were stored: the API server refuses that as long as its status.storedVersions names it"
}

// maxListed limits the fields that a sentence names.
const maxListed = 5

func list(fields []Field) string {
	var names []string
	for _, field := range fields {
		names = append(names, field.Path+" ("+field.Version+")")
	}
	return printable.Few(names, maxListed)
}

func (c *Change) narrowings() string {
	var parts []string
	for _, field := range c.NarrowedFields {
		parts = append(parts, fmt.Sprintf("%s (%s: %s)", field.Path, field.Version, field.How))
	}
	return printable.Few(parts, maxListed)
}
