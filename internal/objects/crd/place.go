package crd

import (
	"strconv"
	"strings"
)

// A place is a field of an object.
type place struct {
	keys  []string
	name  string // as people write it: spec.list[0]["a.b"]
	value any    // nil if there is none
}

// FieldKeys returns the keys of a field of an object, which the API server has named.
func FieldKeys(object map[string]any, name string) []string { return locate(object, name).keys }

// locate finds the field that the API server's libraries name. They write dots in keys
// like dots between keys, so locate looks up which keys the object has.
func locate(object any, name string) place {
	var p place
	for rest := name; ; {
		inBrackets := strings.HasPrefix(rest, "[")
		rest = strings.TrimLeft(rest, ".")
		if rest == "" {
			p.value = object
			return p
		}
		if inBrackets {
			rest = rest[1:]
		}
		key := nextKey(object, rest, inBrackets)
		rest = rest[len(key):]
		if inBrackets {
			rest = strings.TrimPrefix(rest, "]")
		}
		var isList bool
		object, isList = child(object, key)
		p.keys = append(p.keys, key)
		p.name = join(p.name, key, isList || inBrackets && isIndex(key))
	}
}

// nextKey returns the first key of a name: the longest key of the object that fits, or
// the name up to the next separator.
func nextKey(object any, rest string, inBrackets bool) string {
	ends := func(after string) bool {
		if inBrackets {
			return strings.HasPrefix(after, "]")
		}
		return after == "" || after[0] == '.' || after[0] == '['
	}
	longest, found := "", false
	fields, _ := object.(map[string]any)
	for key := range fields {
		if after, ok := strings.CutPrefix(rest, key); ok && ends(after) && key != "" && len(key) > len(longest) {
			longest, found = key, true
		}
	}
	if found {
		return longest
	}
	stop := ".["
	if inBrackets {
		stop = "]"
	}
	if end := strings.IndexAny(rest, stop); end >= 0 {
		return rest[:end]
	}
	return rest
}

// child returns the value at a key of a mapping or an index of a list.
func child(object any, key string) (value any, isList bool) {
	switch object := object.(type) {
	case map[string]any:
		return object[key], false
	case []any:
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= len(object) {
			return nil, err == nil
		}
		return object[i], true
	default:
		return nil, false
	}
}

func isIndex(key string) bool {
	_, err := strconv.Atoi(key)
	return err == nil
}

// join appends a key to a name.
func join(name, key string, isIndex bool) string {
	switch {
	case isIndex:
		return name + "[" + key + "]"
	case !isPlain(key):
		return name + "[" + strconv.Quote(key) + "]"
	case name == "":
		return key
	default:
		return name + "." + key
	}
}

func isPlain(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return !(r == '_' || r == '-' || r == '$' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' ||
			'A' <= r && r <= 'Z')
	})
}
