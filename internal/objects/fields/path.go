package fields

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Path leads to a field: keys of mappings, and items of lists.
type Path []PathStep

// A PathStep is one part of a path: a key of a mapping, or an item of a list.
type PathStep struct {
	Key   string // key of a mapping; or the field that identifies an item, such as "name"
	Value string // value of the identifying field
	Index int    // index of an item in its list; unused for a key of a mapping
}

// none is the index of a step that does not lead to an item of a list.
const none = -1

// IsItem reports whether a step leads to an item of a list.
func (s PathStep) IsItem() bool { return s.Index != none }

// In returns the value at a step, nil if there is none, and the index of an item in this
// list, which may differ from the index in the list that it was compared with.
func (s PathStep) In(value any) (inner any, place int) {
	if !s.IsItem() {
		fields, _ := value.(map[string]any)
		return fields[s.Key], none
	}
	list, _ := value.([]any)
	if s.Key == "" {
		if s.Index < len(list) {
			return list[s.Index], s.Index
		}
		return nil, none
	}
	i := slices.IndexFunc(list, func(item any) bool { return identityOf(s.Key, item) == s.Value })
	if i < 0 {
		return nil, none
	}
	return list[i], i
}

// String returns a path as people write it: spec.containers[name=web].args[0], with
// quotes around keys and names that have dots or other special characters.
func (p Path) String() string {
	var out strings.Builder
	for _, step := range p {
		switch {
		case step.Index != none && step.Key != "":
			out.WriteString("[" + step.Key + "=" + quoted(step.Value) + "]")
		case step.Index != none:
			out.WriteString("[" + strconv.Itoa(step.Index) + "]")
		case step.Key != quoted(step.Key):
			out.WriteString("[" + quoted(step.Key) + "]")
		default:
			if out.Len() > 0 {
				out.WriteString(".")
			}
			out.WriteString(step.Key)
		}
	}
	return out.String()
}

// last returns the key that a path ends with; "" if it ends with an item of a list.
func (p Path) last() string {
	if len(p) == 0 || p[len(p)-1].IsItem() {
		return ""
	}
	return p[len(p)-1].Key
}

// quoted returns a text in quotes, if it would be ambiguous without them.
func quoted(text string) string {
	if text == "" || strings.ContainsAny(text, `.[]"= `) {
		return strconv.Quote(text)
	}
	return text
}

// MarshalText writes a path into JSON and YAML.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Keys returns the steps as in a document: keys, and indexes of items in the newer of
// the two lists that were compared, or in the older one if they were removed.
func (p Path) Keys() []string {
	keys := make([]string, len(p))
	for i, step := range p {
		keys[i] = step.Key
		if step.Index != none {
			keys[i] = strconv.Itoa(step.Index)
		}
	}
	return keys
}

// isWithin reports whether a path is a field, whose keys are separated by dots, or a part of the field.
func (p Path) isWithin(field string) bool {
	return hasCommonPrefix(p, strings.Split(field, ".")) && len(p) > strings.Count(field, ".")
}

// overlaps reports whether a path is within a field, or the field within the path.
func (p Path) overlaps(field string) bool { return hasCommonPrefix(p, strings.Split(field, ".")) }

// hasCommonPrefix reports whether the shorter of a path and a field begins the longer one. "*" matches any item of a
// list.
func hasCommonPrefix(p Path, keys []string) bool {
	for i, key := range keys[:min(len(p), len(keys))] {
		isItem := p[i].Index != none
		if isItem != (key == "*") || !isItem && p[i].Key != key {
			return false
		}
	}
	return true
}

// A Misfit is a part of an object that can't be read.
type Misfit struct {
	Path []string // keys of mappings, and indexes of lists
	Err  error
}

// maxMisfits bounds the misfits of one object: a list may have a million.
const maxMisfits = 20

// Misfits returns the smallest parts of an object that can't be read. The errors of readers name no field, or none in a
// list, so smaller and smaller parts of the object are read, one key of a mapping or one item of a list each, until the
// part that fails is a single field.
func Misfits(object map[string]any, read func(map[string]any) error) []Misfit {
	f := &misfitFinder{read: read}
	f.find(object, nil, func(kept any) any { return kept })
	return f.found
}

type misfitFinder struct {
	read  func(map[string]any) error
	found []Misfit
}

// find searches a value. The function around returns an object with the value in its place.
func (f *misfitFinder) find(value any, path []string, around func(any) any) {
	if len(f.found) >= maxMisfits {
		return
	}
	err := f.try(around(value))
	if err == nil {
		return
	}
	before := len(f.found)
	findIn := func(step string, item any, alone func(any) any) {
		f.find(item, append(slices.Clone(path), step), func(kept any) any { return around(alone(kept)) })
	}
	switch value := value.(type) {
	case map[string]any:
		if f.try(around(map[string]any{})) != nil {
			break // no mapping is allowed here
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			findIn(key, value[key], func(kept any) any { return map[string]any{key: kept} })
		}
	case []any:
		if f.try(around([]any{})) != nil {
			break
		}
		for i, item := range value {
			findIn(strconv.Itoa(i), item, func(kept any) any { return []any{kept} })
		}
	}
	if len(f.found) == before { // no part fails alone, so the value itself does
		f.found = append(f.found, Misfit{path, err})
	}
}

func (f *misfitFinder) try(object any) error {
	fields, isMapping := object.(map[string]any)
	if !isMapping {
		return nil
	}
	return f.read(fields)
}
