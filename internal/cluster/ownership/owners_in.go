package ownership

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/runlevel/runlevel/internal/objects/fields"
)

// OwnersIn returns a function like Owners for the fields of an object. It takes paths of differences between the object
// and its wanted state. There may be very many of these paths.
func OwnersIn(live *unstructured.Unstructured) func(fields.Path) []string {
	entries := read(live.GetManagedFields())
	all := fieldpath.NewSet()
	for _, entry := range entries {
		all = all.Union(entry.fields)
	}
	return func(path fields.Path) []string { return ownersOf(entries, asOwned(live.Object, path, all)) }
}

// asOwned converts a path to the form that it has in managedFields.
func asOwned(object any, path fields.Path, all *fieldpath.Set) fieldpath.Path {
	var owned fieldpath.Path
	for _, step := range path {
		inner, place := step.In(object)
		element := fieldpath.PathElement{FieldName: &step.Key}
		if step.IsItem() {
			element = itemAs(inner, place, all)
		}
		owned, object, all = append(owned, element), inner, all.WithPrefix(element)
	}
	return owned
}

// itemAs returns a step to an item of a list as in managedFields: by its keys, its value or its index. Only entries
// that have the item show which one is used.
func itemAs(item any, place int, all *fieldpath.Set) fieldpath.PathElement {
	for _, step := range steps(all) {
		if leadsTo(step, item, place) {
			return step
		}
	}
	return fieldpath.PathElement{Index: &place}
}

// leadsTo reports whether a step of an entry leads to an item of a list.
func leadsTo(step fieldpath.PathElement, item any, place int) bool {
	switch {
	case step.Key != nil:
		keyed, _ := item.(map[string]any)
		return keyed != nil && !slices.ContainsFunc(*step.Key, func(key value.Field) bool {
			return !value.Equals(key.Value, value.NewValueInterface(keyed[key.Name]))
		})
	case step.Value != nil:
		return item != nil && value.Equals(*step.Value, value.NewValueInterface(item))
	default:
		return step.Index != nil && *step.Index == place
	}
}
