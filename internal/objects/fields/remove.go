package fields

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Remove removes a field, or an item of a list, from an object, by its path as the API
// server writes it: .spec.containers[name="web"].image. It reports whether the field
// existed.
func Remove(object map[string]any, path string) bool {
	return editKey(object, path, func(any) (any, bool) { return nil, false })
}

// EmptyToNull replaces an empty mapping or list by null. It reports whether it has
// replaced one.
func EmptyToNull(object map[string]any, path string) bool {
	wasEmpty := false
	editKey(object, path, func(value any) (any, bool) {
		if wasEmpty = isEmpty(value); wasEmpty {
			return nil, true
		}
		return value, true
	})
	return wasEmpty
}

// Has reports whether an object has a field, or an item of a list, by such a path.
func Has(object map[string]any, path string) bool {
	return editKey(object, path, func(value any) (any, bool) { return value, true })
}

func isEmpty(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	default:
		return false
	}
}

// An editFunc returns the new value of a field, and whether the field remains.
type editFunc func(value any) (instead any, stays bool)

// editAt edits the field at a path within a value. It returns the new value, whether it
// remains, and whether the path was found.
func (e editFunc) editAt(value any, path string) (instead any, stays, found bool) {
	if path == "" {
		instead, stays = e(value)
		return instead, stays, true
	}
	switch value := value.(type) {
	case map[string]any:
		return value, true, editKey(value, path, e)
	case []any:
		items, found := editItem(value, path, e)
		return items, true, found
	default:
		return value, true, false
	}
}

// editKey edits a field of a mapping. Keys may have dots, which the path does not
// escape: the longest existing key is meant.
func editKey(fields map[string]any, path string, e editFunc) bool {
	path, isKey := strings.CutPrefix(path, ".")
	if !isKey {
		return false
	}
	for end := len(path); end >= 0; end-- {
		if end < len(path) && path[end] != '.' && path[end] != '[' {
			continue
		}
		inner, exists := fields[path[:end]]
		if !exists {
			continue
		}
		instead, stays, found := e.editAt(inner, path[end:])
		switch {
		case !found:
			continue
		case stays:
			fields[path[:end]] = instead
		default:
			delete(fields, path[:end])
		}
		return true
	}
	return false
}

// editItem edits an item of a list, and returns the new list.
func editItem(items []any, path string, e editFunc) ([]any, bool) {
	index, rest := findItem(items, path)
	if index < 0 {
		return items, false
	}
	instead, stays, found := e.editAt(items[index], rest)
	if found && !stays {
		return slices.Delete(slices.Clone(items), index, index+1), true
	}
	items[index] = instead
	return items, found
}

// findItem returns the index of the item that a path leads to: [2] of an atomic list,
// [name="web"] of a list of type map, [="a"] of a list of type set. It is -1 if there is
// none.
func findItem(items []any, path string) (index int, rest string) {
	if position, rest, ok := cutIndex(path); ok && position < len(items) {
		return position, rest
	}
	selector, rest, ok := cutSelector(path)
	if !ok {
		return -1, ""
	}
	index = slices.IndexFunc(items, func(item any) bool { return isItem(item, selector, false) })
	if index < 0 { // a key that has its default may be missing
		index = slices.IndexFunc(items, func(item any) bool { return isItem(item, selector, true) })
	}
	return index, rest
}

// cutIndex cuts [2] off the front of a path.
func cutIndex(path string) (index int, rest string, ok bool) {
	inner, rest, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
	number, err := strconv.ParseUint(inner, 10, 31)
	return int(number), rest, err == nil
}

// cutSelector cuts [name="web"] off the front of a path, or [="a"], whose key is empty.
func cutSelector(path string) (selector map[string]any, rest string, ok bool) {
	inner, isItem := strings.CutPrefix(path, "[")
	if !isItem {
		return nil, "", false
	}
	selector = map[string]any{}
	for {
		key, after, found := strings.Cut(inner, "=")
		if !found {
			return nil, "", false
		}
		decoder := json.NewDecoder(strings.NewReader(after))
		var value any
		if decoder.Decode(&value) != nil {
			return nil, "", false
		}
		selector[key] = value
		inner = after[decoder.InputOffset():]
		if rest, ends := strings.CutPrefix(inner, "]"); ends {
			return selector, rest, true
		}
		if inner, found = strings.CutPrefix(inner, ","); !found {
			return nil, "", false
		}
	}
}

// isItem reports whether an item of a list matches a selector. The item may lack some of
// its keys.
func isItem(item any, selector map[string]any, inPart bool) bool {
	if wanted, isValue := selector[""]; isValue && len(selector) == 1 {
		return isSame(item, wanted)
	}
	fields, isMapping := item.(map[string]any)
	if !isMapping {
		return false
	}
	for key, wanted := range selector {
		if !isSame(fields[key], wanted) && (fields[key] != nil || !inPart) {
			return false
		}
	}
	return true
}

// isSame compares values, numbers of different types included.
func isSame(a, b any) bool {
	current, _ := json.Marshal(a)
	want, _ := json.Marshal(b)
	return string(current) == string(want)
}
