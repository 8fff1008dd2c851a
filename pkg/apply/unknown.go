package apply

import (
	"encoding/json"
	"strings"
)

// removeField takes a field out of an object, by the path with which the API server
// names it: .spec.containers[name="web"].image. It says whether it was there.
func removeField(value any, path string) bool {
	switch value := value.(type) {
	case map[string]any:
		return removeKey(value, path)
	case []any:
		selector, rest, isItem := cutSelector(path)
		for _, item := range value {
			if isItem && matches(item, selector) && removeField(item, rest) {
				return true
			}
		}
	}
	return false
}

// removeKey takes a key out of a mapping. Keys may have dots, which the path does not
// set off: the longest key that is there is meant.
func removeKey(fields map[string]any, path string) bool {
	path, isKey := strings.CutPrefix(path, ".")
	if !isKey {
		return false
	}
	if _, found := fields[path]; found {
		delete(fields, path)
		return true
	}
	for end := len(path) - 1; end > 0; end-- {
		if path[end] != '.' && path[end] != '[' {
			continue
		}
		if inner, found := fields[path[:end]]; found && removeField(inner, path[end:]) {
			return true
		}
	}
	return false
}

// cutSelector takes the [name="web"] off the front of a path.
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

// matches says whether an item of a list is the one that a selector means.
func matches(item any, selector map[string]any) bool {
	fields, isMapping := item.(map[string]any)
	if !isMapping {
		return false
	}
	for key, wanted := range selector {
		is, _ := json.Marshal(fields[key])
		want, _ := json.Marshal(wanted)
		if string(is) != string(want) && fields[key] != nil { // a default need not be written
			return false
		}
	}
	return true
}
