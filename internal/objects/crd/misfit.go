package crd

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/fields"
)

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
