package ownership

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// restartedAt is the annotation of a pod template by which kubectl restarts a workload.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

// A foreignEntry is the foreign fields of one entry in managedFields.
type foreignEntry struct {
	fields.ForeignFields
	index int // index of the entry
	set   *fieldpath.Set
}

// Foreign returns the fields of a live object that other managers have set and that we do not own, by manager; none if
// we have never applied the object. A field of the release that another manager has taken over since our last apply
// also counts. Fields of autoscalers and injectors do not count: see docs/ownership.md.
func Foreign(live *unstructured.Unstructured) []fields.ForeignFields {
	var all []fields.ForeignFields
	for _, entry := range foreignEntries(live) {
		all = append(all, entry.ForeignFields)
	}
	return all
}

// ExplainForeign returns in lines which fields that other managers have set may keep an object of a release from
// becoming ready, and the command that removes them; none if there are none. If isHeld, a process holds the lock of the
// release.
func ExplainForeign(live *unstructured.Unstructured, isHeld bool) []string {
	var lines []string
	for _, foreign := range Foreign(live) {
		foreign.Fields = slices.DeleteFunc(foreign.Fields, func(field string) bool {
			return strings.HasPrefix(field, "metadata.")
		})
		if len(foreign.Fields) > 0 {
			lines = append(lines, foreign.String())
		}
	}
	if len(lines) == 0 {
		return nil
	}
	kind, namespace, name := live.GroupVersionKind().GroupKind().String(), live.GetNamespace(), live.GetName()
	if isHeld {
		command := "kubectl edit " + strings.ToLower(kind) + "/" + name
		if namespace != "" {
			command += " --namespace=" + namespace
		}
		return append(lines, "remove with: "+command)
	}
	if namespace != "" {
		kind += "/" + namespace
	}
	return append(lines, fmt.Sprintf("remove with: runlevel apply %s@ --remove-foreign-fields=%s/%s",
		live.GetLabels()[objectmeta.ReleaseLabel], kind, name))
}

// foreignEntries returns the entries of other managers that have foreign fields.
func foreignEntries(live *unstructured.Unstructured) []foreignEntry {
	entries := live.GetManagedFields()
	if !slices.ContainsFunc(entries, isOurs) {
		return nil
	}
	applied, all := ownedByRunlevel(entries), fieldpath.NewSet()
	for _, entry := range read(entries) {
		all = all.Union(entry.fields)
	}
	var found []foreignEntry
	for i, entry := range entries {
		set, err := fieldsOf(entry)
		if err != nil || !objectmeta.IsOfOthers(entry) {
			continue
		}
		f := foreignEntry{fields.ForeignFields{Manager: managerName(entry.Manager, ""), Since: timeOf(entry)}, i,
			fieldpath.NewSet()}
		set.Difference(applied).Iterate(func(path fieldpath.Path) {
			if !isLeft(live, path) && fields.Has(live.Object, path.String()) { // another version may name it otherwise
				f.set.Insert(path.Copy())
			}
		})
		f.Fields = f.names(live, all)
		if len(f.Fields) > 0 {
			found = append(found, f)
		}
	}
	return found
}

// isLeft reports whether a field is left to the manager that has set it.
func isLeft(live *unstructured.Unstructured, field fieldpath.Path) bool {
	loss := Conflict{Field: strings.TrimPrefix(field.String(), ".")}
	for _, fieldPath := range []string{"status", "metadata.finalizers", "metadata.ownerReferences"} {
		if rest, isWithin := strings.CutPrefix(loss.Field, fieldPath); isWithin &&
			(rest == "" || strings.ContainsAny(rest[:1], ".[")) {
			return true
		}
	}
	last := field[len(field)-1].FieldName
	return last != nil && *last == restartedAt || IsShared(live, loss) || Yields(live, loss, true)
}

// names returns the fields of an entry: neither mappings of which other fields are known, nor fields within an item of
// a foreign list. Values of Secrets that name items are masked.
func (f foreignEntry) names(live *unstructured.Unstructured, all *fieldpath.Set) []string {
	var names []string
	holdsSecrets := fields.HoldsSecrets(live.Object)
	f.set.Iterate(func(path fieldpath.Path) {
		below := all
		for i, step := range path {
			if i > 0 && path[i-1].FieldName == nil && f.set.Has(path[:i]) {
				return
			}
			below = below.WithPrefix(step)
		}
		if path[len(path)-1].FieldName != nil && !below.Empty() {
			return
		}
		name := printable.Line(strings.TrimPrefix(path.String(), "."))
		if holdsSecrets {
			name = MaskItem(name)
		}
		names = append(names, name)
	})
	return slices.Compact(names)
}

// MaskItem returns the path of a field without values that may name an item of a list.
func MaskItem(field string) string {
	if path, _, hasItem := strings.Cut(field, "["); hasItem {
		return path + "[***]"
	}
	return field
}

// withoutForeign returns the entries of a live object without the foreign fields of some managers, and these fields.
func withoutForeign(live *unstructured.Unstructured,
	isRemoved func(manager string) bool) (entries []metav1.ManagedFieldsEntry, taken *fieldpath.Set, lost []Conflict) {
	entries, taken = live.GetManagedFields(), fieldpath.NewSet()
	for _, found := range foreignEntries(live) {
		entry := &entries[found.index]
		if !isRemoved(entry.Manager) {
			continue
		}
		set, _ := fieldsOf(*entry) // foreignEntries has read it
		setFields(entry, set.Difference(found.set))
		taken = taken.Union(found.set)
		for _, field := range found.Fields {
			lost = append(lost, Conflict{found.Manager, field})
		}
	}
	return entries, taken, lost
}

// TakeForeign makes us the owner of the foreign fields of some managers, so that our next apply removes them. It
// returns the object after that, and the fields; no object if there are none. It fails with a conflict if the object
// was written since it was read.
func TakeForeign(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, live *unstructured.Unstructured,
	isRemoved func(manager string) bool) (metav1.Object, []Conflict, error) {
	entries, taken, lost := withoutForeign(live, isRemoved)
	if len(lost) == 0 {
		return nil, nil, nil
	}
	own := &entries[slices.IndexFunc(entries, isOurs)]
	set, err := fieldsOf(*own)
	if err != nil {
		return nil, nil, err
	}
	setFields(own, set.Union(taken))
	now, err := patchEntries(ctx, c, resource, live, entries)
	return now, lost, err
}

// DryRunTakeForeign removes the foreign fields of some managers from the result of a dry run, as an apply after
// TakeForeign would. It returns the removed paths, for DryRunDefaults, and the fields.
func DryRunTakeForeign(result *unstructured.Unstructured,
	isRemoved func(manager string) bool) (removed []string, lost []Conflict) {
	entries, taken, lost := withoutForeign(result, isRemoved)
	kept := fieldpath.NewSet(fieldpath.MakePathOrDie("metadata", "name"))
	for _, entry := range read(entries) {
		kept = kept.Union(entry.fields)
	}
	l := remover{object: result.Object}
	l.remove(nil, taken, kept)
	return l.removed, lost
}
