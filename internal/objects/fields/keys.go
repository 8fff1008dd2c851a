package fields

import (
	"strconv"
	"strings"
)

// KeysAt returns the keys and indexes of a field that the API server has named as in .spec.list[name="a"].field, as far
// as the object has them.
func KeysAt(object map[string]any, path string) (keys []string) {
	for value := any(object); path != ""; {
		switch inside := value.(type) {
		case map[string]any:
			key := longestKey(inside, strings.TrimPrefix(path, "."))
			if key == "" {
				return keys
			}
			keys, value, path = append(keys, key), inside[key], strings.TrimPrefix(path, ".")[len(key):]
		case []any:
			index, rest := findItem(inside, path)
			if index < 0 {
				return keys
			}
			keys, value, path = append(keys, strconv.Itoa(index)), inside[index], rest
		default:
			return keys
		}
	}
	return keys
}

// longestKey returns the longest key with which a path begins; "" if there is none.
func longestKey(fields map[string]any, path string) (longest string) {
	for key := range fields {
		rest, begins := strings.CutPrefix(path, key)
		if begins && (rest == "" || rest[0] == '.' || rest[0] == '[') && len(key) > len(longest) {
			longest = key
		}
	}
	return longest
}
