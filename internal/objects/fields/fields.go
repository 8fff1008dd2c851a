// Package fields knows what Kubernetes says of fields: how two objects differ, which
// fields can't be changed once they are set, and which hold secrets.
//
// It knows objects only as they are written, reads no cluster, and decides nothing:
// whether a difference matters is for the caller to decide.
//
// Diff is the call to start from. Immutable says which of two objects' differences
// an API server refuses, and Mask takes the secrets out of an object.
package fields

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
)

// A Difference is one field that differs. Old is nil for one that is new, and New for one
// that is gone. Values of Secrets, and those in hooks of Deployments, are masked.
type Difference struct {
	Path Path `json:"path"`
	Old  any  `json:"old,omitempty"`
	New  any  `json:"new,omitempty"`
}

// Diff returns how two objects differ, in the order of their fields. Items of lists
// are compared with those of the same name, port or the like where all items have
// one, and else by their places. A field that is null is one that is not there.
// Neither object is changed, and what is returned may share values with both.
func Diff(before, after map[string]any) []Difference {
	d := differ{}
	d.compareMappings(nil, before, after)
	return d.changes
}

// A differ collects changes.
type differ struct{ changes []Difference }

func (d *differ) report(path Path, before, after any) {
	change := Difference{Path: slices.Clone(path)}
	change.Old, change.New = maskedChange(path.last(), before, after)
	d.changes = append(d.changes, change)
}

func (d *differ) compare(path Path, before, after any) {
	switch from := before.(type) {
	case map[string]any:
		if to, same := after.(map[string]any); same {
			d.compareMappings(path, from, to)
			return
		}
	case []any:
		if to, same := after.([]any); same {
			d.compareLists(path, from, to)
			return
		}
	}
	if !reflect.DeepEqual(before, after) {
		d.report(path, before, after)
	}
}

func (d *differ) compareMappings(path Path, before, after map[string]any) {
	if isSecret(before, path == nil) || isSecret(after, path == nil) {
		before, after = hideSecret(before), hideSecret(after)
	}
	keys := make(map[string]bool, len(before)+len(after))
	for key := range before {
		keys[key] = true
	}
	for key := range after {
		keys[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		d.compare(append(path, PathStep{Key: key, Index: none}), before[key], after[key])
	}
}

func (d *differ) compareLists(path Path, before, after []any) {
	key := identity(before, after)
	if key == "" {
		d.compareByPlace(path, before, after)
		return
	}
	old, changed := placesByIdentity(key, before), placesByIdentity(key, after)
	var kept, keptAfter []any // what is in both lists, in the order of each
	for i, item := range before {
		value := identityOf(key, item)
		step := PathStep{Key: key, Value: value, Index: i}
		if j, stays := changed[value]; stays {
			kept = append(kept, value)
			step.Index = j
			d.compare(append(path, step), item, after[j])
		} else {
			d.report(append(path, step), item, nil)
		}
	}
	for i, item := range after {
		value := identityOf(key, item)
		if _, known := old[value]; known {
			keptAfter = append(keptAfter, value)
		} else {
			d.report(append(path, PathStep{Key: key, Value: value, Index: i}), nil, item)
		}
	}
	if !slices.Equal(kept, keptAfter) { // they are in another order
		d.report(path, kept, keptAfter)
	}
}

// compareByPlace compares lists whose items nothing tells apart. What is the same at
// their ends stays out of it, so that an item that is put in does not make others of
// all that are behind it. Lists of the same length need no such care, and it would be
// paid for at each depth of lists in lists.
func (d *differ) compareByPlace(path Path, before, after []any) {
	same := 0
	for len(before) != len(after) && same < min(len(before), len(after)) && reflect.DeepEqual(before[len(before)-1-same], after[len(after)-1-same]) {
		same++
	}
	before, after = before[:len(before)-same], after[:len(after)-same]
	for i := range max(len(before), len(after)) {
		d.compare(append(path, PathStep{Index: i}), itemAt(before, i), itemAt(after, i))
	}
}

func itemAt(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// identities are the fields that tell items of a list apart, the most telling first.
// Kubernetes' own lists have one of them where an item is more than its place.
var identities = []string{"name", "mountPath", "containerPort", "port", "key", "type", "ip"}

// identity is the field that all items of two lists have, each with a value of its
// own; "" if there is none.
func identity(lists ...[]any) string {
	for _, key := range identities {
		if !slices.ContainsFunc(lists, func(list []any) bool { return len(placesByIdentity(key, list)) != len(list) }) {
			return key
		}
	}
	return ""
}

// placesByIdentity finds items by a field. It has fewer than the list if two have the
// same value, or one has none.
func placesByIdentity(key string, list []any) map[string]int {
	found := make(map[string]int, len(list))
	for i, item := range list {
		value := identityOf(key, item)
		if value == "" {
			return nil
		}
		found[value] = i
	}
	return found
}

func identityOf(key string, item any) string {
	fields, _ := item.(map[string]any)
	if isSecret(fields, false) {
		return "" // what it has of that name may be secret
	}
	switch value := fields[key].(type) {
	case string:
		return value
	case int64:
		return strconv.FormatInt(value, 10)
	default:
		return ""
	}
}

// ofServers are the fields of metadata that only the server says: each write changes them,
// a dry run makes them up, and a manifest has them that was copied from a cluster.
var ofServers = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "managedFields"}

// WithoutServers is an object without what is the server's in its metadata. It shares all
// else with the object, which stays whole.
func WithoutServers(object map[string]any) map[string]any {
	metadata, isMapping := object["metadata"].(map[string]any)
	if !isMapping {
		return object
	}
	trimmed := maps.Clone(object)
	metadata = maps.Clone(metadata)
	for _, field := range ofServers {
		delete(metadata, field)
	}
	trimmed["metadata"] = metadata
	return trimmed
}
