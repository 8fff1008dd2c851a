// Package fields compares the fields of objects. It finds the differences of two objects,
// immutable fields, and fields that hold secrets.
//
// The package works on unstructured objects, reads no cluster, and decides nothing: the caller
// decides whether a difference matters.
//
// Start with Diff. Immutable returns the differences of two objects that an API server refuses, and Mask removes the
// secrets from an object.
package fields

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Difference is one field that differs. Old is nil for an added field, and New for a
// removed one. Values of Secrets and in hooks of Deployments are masked.
type Difference struct {
	Path Path `json:"path"`
	Old  any  `json:"old,omitempty"`
	New  any  `json:"new,omitempty"`
}

// Diff returns how two objects differ, in the order of their fields. Items of lists
// are matched by their name, port or another key if all items have one, and else by
// their index. A null field counts as missing. Neither object is changed, and
// the result may share values with both.
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
	switch old := before.(type) {
	case map[string]any:
		if next, same := after.(map[string]any); same {
			d.compareMappings(path, old, next)
			return
		}
	case []any:
		if next, same := after.([]any); same {
			d.compareLists(path, old, next)
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
	var kept, keptAfter []any // the items that are in both lists, in the order of each
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
	if !slices.Equal(kept, keptAfter) { // the items are in another order
		d.report(path, kept, keptAfter)
	}
}

// compareByPlace compares lists whose items have no key. Equal items at the start and
// the end are skipped, so that an inserted item does not change all items behind it.
// Lists of the same length are compared without that: its cost would multiply with the
// depth of nested lists.
func (d *differ) compareByPlace(path Path, before, after []any) {
	same := 0
	for len(before) != len(after) && same < min(len(before), len(after)) &&
		reflect.DeepEqual(before[len(before)-1-same], after[len(after)-1-same]) {
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

// identities are the fields that may be the key of a list's items, the best first. The
// lists of built-in kinds have one of these fields if their items have a key.
var identities = []string{"name", "mountPath", "containerPort", "port", "key", "type", "ip"}

// identity returns the field that all items of two lists have, with unique values; ""
// if there is none.
func identity(lists ...[]any) string {
	for _, key := range identities {
		if !slices.ContainsFunc(lists, func(list []any) bool { return len(placesByIdentity(key, list)) != len(list) }) {
			return key
		}
	}
	return ""
}

// placesByIdentity returns the indexes of items by the value of a field: fewer than the
// list has items if two have the same value, or one has none.
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
		return "" // its fields of that name may be secret
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

// serverFields are the fields of metadata that only the API server sets: each write changes
// them, a dry run invents them, and a manifest that was copied from a cluster has them.
var serverFields = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "managedFields"}

// WithoutServers returns an object without the fields of its metadata that the API server
// sets. The object is not changed, and shares its other fields with the result.
func WithoutServers(object map[string]any) map[string]any {
	metadata, isMapping := object["metadata"].(map[string]any)
	if !isMapping {
		return object
	}
	trimmed := maps.Clone(object)
	metadata = maps.Clone(metadata)
	for _, field := range serverFields {
		delete(metadata, field)
	}
	trimmed["metadata"] = metadata
	return trimmed
}

// ForeignFields are fields of an object that a manager has set, and that the release of the object does not have.
type ForeignFields struct {
	Manager string    `json:"manager"`
	Since   time.Time `json:"since,omitzero"` // when the manager last changed any of its fields
	Fields  []string  `json:"fields"`
}

// maxForeignNames limits the fields of a manager that a sentence names.
const maxForeignNames = 5

// notInRelease ends each sentence about foreign fields.
const notInRelease = ", which the release does not have"

// String returns a sentence with the manager, its fields and the time.
func (f ForeignFields) String() string {
	text := f.Manager + " set " + printable.Few(f.Fields, maxForeignNames)
	if !f.Since.IsZero() {
		text += " at " + f.Since.UTC().Format(time.RFC3339)
	}
	return text + notInRelease
}

// IsForeign reports whether a line about a waiting object is about foreign fields.
func IsForeign(line string) bool { return strings.HasSuffix(line, notInRelease) }

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

// A Refusal contains the reason why an API server refuses an object.
type Refusal struct {
	Path    []string // path to the field: keys of mappings, and indexes of lists
	Message string   // one line: the field and its problem
}

// Refuses begins the message of each refusal, both of an API server and of a check without one.
const Refuses = "the API server refuses it: "

// RefusalMessages returns the messages of refusals.
func RefusalMessages(refusals []Refusal) []string {
	var messages []string
	for _, refusal := range refusals {
		messages = append(messages, refusal.Message)
	}
	return messages
}
