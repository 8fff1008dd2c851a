package ownership

import (
	"context"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// Leftovers are the fields of a live object that a draft does not have, near those for which the server has refused it.
// In a union, such as the source of a volume, an apply sets the member of the draft, and keeps another member that a
// default or another manager has set: the server refuses an object with two.
type Leftovers struct {
	Fields []fieldpath.Path
	// Others is the result of a dry run of AsLive. DryRunRemove starts from it.
	Others *unstructured.Unstructured

	live, draft *unstructured.Unstructured
	around      []fieldpath.Path // the mappings that have them: in both objects, and nearest to a refused field
}

// FindLeftovers returns the leftovers near the fields for which a server has refused a draft.
func FindLeftovers(live, draft *unstructured.Unstructured, refused []string) *Leftovers {
	l := &Leftovers{live: live, draft: draft}
	for _, field := range refused {
		l.find(nil, live.Object, draft.Object, stepsTo(field))
	}
	return l
}

// stepsTo returns the keys and indexes on the way to a field, as servers write it in what they refuse:
// spec.containers[0].env[0].value, or data[key].
func stepsTo(field string) []string {
	if field == "<nil>" { // the field of a whole custom resource
		return nil
	}
	return strings.FieldsFunc(field, func(r rune) bool { return strings.ContainsRune(".[]", r) })
}

// find finds the mappings nearest to a field that are in both live object and draft. An index in the field is of a
// merged list that neither object has, so all items of a list are searched.
func (l *Leftovers) find(path fieldpath.Path, live, draft any, way []string) {
	l.eachItem(path, live, draft, func(path fieldpath.Path, live, draft any) {
		l.find(path, live, draft, way[min(1, len(way)):])
	})
	current, isMapping := live.(map[string]any)
	wanted, isWanted := draft.(map[string]any)
	if !isMapping || !isWanted {
		return
	}
	if len(way) > 0 && hasInner(current[way[0]]) && hasInner(wanted[way[0]]) {
		l.find(append(slices.Clone(path), step(way[0])), current[way[0]], wanted[way[0]], way[1:])
		return
	}
	isKnown := func(other fieldpath.Path) bool { return other.Equals(path) }
	if before := len(l.Fields); !slices.ContainsFunc(l.around, isKnown) {
		l.collect(path, live, draft)
		if len(l.Fields) > before {
			l.around = append(l.around, slices.Clone(path))
		}
	}
}

// collect adds all fields of a live mapping that the draft does not have.
func (l *Leftovers) collect(path fieldpath.Path, live, draft any) {
	l.eachItem(path, live, draft, l.collect)
	current, isMapping := live.(map[string]any)
	wanted, isWanted := draft.(map[string]any)
	if !isMapping || !isWanted {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(current)) {
		inner := append(slices.Clone(path), step(key))
		switch _, isInDraft := wanted[key]; {
		case len(path) == 0 && !isBody(key):
		case isInDraft:
			l.collect(inner, current[key], wanted[key])
		default:
			l.Fields = append(l.Fields, inner)
		}
	}
}

// eachItem calls a function with each pair of items that have the same name in two lists.
func (l *Leftovers) eachItem(path fieldpath.Path, live, draft any, do func(path fieldpath.Path, live, draft any)) {
	items, isList := live.([]any)
	wanted, isWanted := draft.([]any)
	if !isList || !isWanted {
		return
	}
	for _, item := range items {
		name := nameOf(item)
		i := slices.IndexFunc(wanted, func(other any) bool { return name != "" && nameOf(other) == name })
		if i >= 0 {
			do(append(slices.Clone(path), itemStep(name)), item, wanted[i])
		}
	}
}

// hasInner reports whether a value has fields or items.
func hasInner(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return true
	default:
		return false
	}
}

func nameOf(item any) string {
	mapping, _ := item.(map[string]any)
	name, _ := mapping["name"].(string)
	return name
}

func step(key string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &key} }

func itemStep(name string) fieldpath.PathElement {
	return fieldpath.PathElement{Key: &value.FieldList{{Name: "name", Value: value.NewValueInterface(name)}}}
}

// mappingAt returns the mapping at a path; nil if there is none.
func mappingAt(object map[string]any, path fieldpath.Path) map[string]any {
	var value any = object
	for _, step := range path {
		switch within := value.(type) {
		case map[string]any:
			value = within[*step.FieldName]
		case []any:
			place := slices.IndexFunc(within, func(item any) bool { return leadsTo(step, item, 0) })
			if place < 0 {
				return nil
			}
			value = within[place]
		}
	}
	mapping, _ := value.(map[string]any)
	return mapping
}

// isBody reports whether a top-level field of an object is neither its name and kind, nor its status.
func isBody(key string) bool {
	return !slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, key)
}

// AsLive returns the draft with the fields of the live object around the leftovers: the server accepts it, unless it
// refuses other fields.
func (l *Leftovers) AsLive() *unstructured.Unstructured {
	same := l.draft.DeepCopy()
	for _, path := range l.around {
		mapping := mappingAt(same.Object, path)
		replaced := func(key string) bool { return len(path) > 0 || isBody(key) }
		maps.DeleteFunc(mapping, func(key string, _ any) bool { return replaced(key) })
		for key, value := range mappingAt(l.live.Object, path) {
			if replaced(key) {
				mapping[key] = runtime.DeepCopyJSONValue(value)
			}
		}
	}
	return same
}

// DryRunRemove returns the result of a dry run of the draft with some of the leftovers removed.
func (l *Leftovers) DryRunRemove(ctx context.Context, c *cluster.Cluster, resource cluster.Resource,
	removed []fieldpath.Path) (cluster.WriteResult, error) {
	object := l.Others.DeepCopy()
	var names []string
	for _, path := range removed {
		names = append(names, path.String())
		fields.Remove(object.Object, path.String())
	}
	for _, path := range l.around {
		wanted := maps.Clone(mappingAt(l.draft.Object, path))
		if len(path) == 0 {
			maps.DeleteFunc(wanted, func(key string, _ any) bool { return !isBody(key) })
		}
		overlay(mappingAt(object.Object, path), wanted)
	}
	result, err := DryRunDefaults(ctx, c, resource, object, names)
	if err == nil {
		result.SetManagedFields(l.Others.GetManagedFields())
	}
	return cluster.WriteResult{Object: result}, err
}

// overlay sets the fields of one mapping in another. Items of lists are merged by name.
func overlay(below, above map[string]any) {
	for key, value := range above {
		mapping, isMapping := value.(map[string]any)
		under, isUnder := below[key].(map[string]any)
		items, isList := value.([]any)
		list, isOver := below[key].([]any)
		switch {
		case isMapping && isUnder:
			overlay(under, mapping)
		case isList && isOver && !slices.ContainsFunc(items, func(item any) bool { return nameOf(item) == "" }):
			for _, item := range items {
				current := slices.IndexFunc(list, func(other any) bool { return nameOf(other) == nameOf(item) })
				if current < 0 {
					list = append(list, runtime.DeepCopyJSONValue(item))
				} else {
					overlay(list[current].(map[string]any), item.(map[string]any))
				}
			}
			below[key] = list
		default:
			below[key] = runtime.DeepCopyJSONValue(value)
		}
	}
}

// TakeOver makes us the only owner of some fields of a live object, so that an apply without them removes them.
// It fails with a conflict if the object was written since it was read.
func TakeOver(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, live *unstructured.Unstructured,
	taken []fieldpath.Path) (metav1.Object, error) {
	entries := live.GetManagedFields()
	if !slices.ContainsFunc(entries, isOurs) {
		entries = append(entries, metav1.ManagedFieldsEntry{
			Manager: cluster.FieldManager, Operation: metav1.ManagedFieldsOperationApply,
			APIVersion: resource.GroupVersion().String(), FieldsType: "FieldsV1",
		})
	}
	for i := range entries {
		set, err := fieldsOf(entries[i])
		if err != nil {
			return nil, err
		}
		for _, path := range taken {
			set = set.RecursiveDifference(fieldpath.NewSet(path))
			if isOurs(entries[i]) {
				set.Insert(path)
			}
		}
		setFields(&entries[i], set)
	}
	return patchEntries(ctx, c, resource, live, entries)
}

// HeldBy returns the other managers that have set some fields of a live object.
func HeldBy(live metav1.Object, paths []fieldpath.Path) []Conflict {
	var held []Conflict
	for _, path := range paths {
		for _, manager := range Owners(live.GetManagedFields(), path) {
			held = append(held, Conflict{
				Manager: manager,
				Field:   printable.Line(strings.TrimPrefix(path.String(), ".")),
			})
		}
	}
	slices.SortFunc(held, inOrder)
	return held
}
