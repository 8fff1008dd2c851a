package crd

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// misfit tells of an object that doesn't fit Go's type for it. Where that is, JSON's
// decoder tells without indexes and keys of mappings; so the first field is taken that
// may be meant. What was decoded stands in the object at a field, or is all of it.
func misfit(object any, at string, err error) SchemaProblem {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) || at+wrong.Field == "" {
		return SchemaProblem{Message: oneLine(strings.TrimSpace(at + " can't be read: " + err.Error()))}
	}
	kind, _, _ := strings.Cut(wrong.Value, " ") // "number 1.5"
	name := strings.Trim(at+"."+wrong.Field, ".")
	path := search(object, strings.Split(name, "."), kind)
	if path == nil {
		path = strings.Split(name, ".")
	}
	return SchemaProblem{Path: path, Message: oneLine(nameOf(object, path) + ": can't be " + article(kind))}
}

// search finds the first value of a kind whose path has all the keys, in order.
func search(value any, keys []string, kind string) []string {
	if len(keys) == 0 && kindOf(value) == kind {
		return []string{}
	}
	try := func(key string, item any, rest []string) []string {
		if path := search(item, rest, kind); path != nil {
			return append([]string{key}, path...)
		}
		return nil
	}
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			if path := try(strconv.Itoa(i), item, keys); path != nil {
				return path
			}
		}
	case map[string]any:
		if len(keys) > 0 {
			if item, ok := value[keys[0]]; ok {
				if path := try(keys[0], item, keys[1:]); path != nil {
					return path
				}
			}
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if path := try(key, value[key], keys); path != nil {
				return path
			}
		}
	}
	return nil
}

// kindOf is JSON's word for the type of a value.
func kindOf(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case bool:
		return "bool"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case nil:
		return "null"
	default:
		return "number"
	}
}

// article puts JSON's words for types into a sentence.
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

// nameOf is how people write a path.
func nameOf(object any, path []string) string {
	name := ""
	for _, key := range path {
		var isList bool
		object, isList = child(object, key)
		name = join(name, key, isList)
	}
	return name
}
