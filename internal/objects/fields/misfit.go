package fields

import (
	"maps"
	"slices"
	"strconv"
)

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
	build := func(step string, item any, alone func(any) any) {
		f.find(item, append(slices.Clone(path), step), func(kept any) any { return around(alone(kept)) })
	}
	switch value := value.(type) {
	case map[string]any:
		if f.try(around(map[string]any{})) != nil {
			break // no mapping is allowed here
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			build(key, value[key], func(kept any) any { return map[string]any{key: kept} })
		}
	case []any:
		if f.try(around([]any{})) != nil {
			break
		}
		for i, item := range value {
			build(strconv.Itoa(i), item, func(kept any) any { return []any{kept} })
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
