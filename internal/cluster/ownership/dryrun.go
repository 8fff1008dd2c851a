package ownership

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/fields"
)

// DryRunAdopt removes those fields from an object that the apply would remove if some managers' fields
// were taken over before it: a dry run can't take over fields. The
// object is the result of a dry run of the apply, with its managedFields, and live is the live
// object. It returns the removed paths, in order, in the server's form.
//
// It follows the server, as far as possible without the kind's schema. The server then sets defaults: see
// DryRunDefaults.
func DryRunAdopt(result *unstructured.Unstructured, live metav1.Object, from []string) []string {
	if slices.ContainsFunc(live.GetManagedFields(), isOurs) {
		return nil
	}
	adopted, kept := fieldpath.NewSet(), fieldpath.NewSet()
	for _, entry := range live.GetManagedFields() {
		set, err := fieldsOf(entry)
		switch {
		case err != nil: // the apply would have failed
		case isAdopted(entry, from):
			adopted = adopted.Union(set)
		default:
			kept = kept.Union(set)
		}
	}
	for _, entry := range result.GetManagedFields() {
		if set, err := fieldsOf(entry); err == nil && isOurs(entry) {
			kept = kept.Union(set)
		}
	}
	kept.Insert(fieldpath.MakePathOrDie("metadata", "name")) // the name has no owner
	l := remover{object: result.Object}
	l.remove(nil, adopted, kept)
	return l.removed
}

// A remover removes fields from an object.
type remover struct {
	object  map[string]any
	removed []string
}

// remove removes fields that are adopted and not kept. A field that contains adopted fields is adopted too, unless it
// is the item of a list, and is removed with all its fields, unless another manager keeps any. No manager keeps an item
// by one of its fields alone: an item without its key would be invalid.
func (r *remover) remove(within fieldpath.Path, adopted, kept *fieldpath.Set) {
	isRemoved := false
	for _, step := range steps(adopted) {
		path := append(slices.Clone(within), step)
		name := path.String()
		if !fields.Has(r.object, name) {
			continue
		}
		if !isMember(adopted, step) || isMember(kept, step) {
			r.remove(path, adopted.WithPrefix(step), kept.WithPrefix(step))
			continue
		}
		fields.Remove(r.object, name)
		r.removed = append(r.removed, name)
		isRemoved = true
	}
	if isRemoved && len(within) > 0 {
		fields.EmptyToNull(r.object, within.String()) // like the server
	}
}

// isMember reports whether a step is in a set, or is a field that contains members of the set.
func isMember(set *fieldpath.Set, step fieldpath.PathElement) bool {
	return set.Members.Has(step) || step.FieldName != nil && !set.WithPrefix(step).Empty()
}

// steps returns the first steps of the paths of a set, in order.
func steps(set *fieldpath.Set) []fieldpath.PathElement {
	all := set.Members.Copy()
	set.Children.Iterate(all.Insert)
	return slices.Collect(all.All())
}

// DryRunDefaults returns the result of a dry run with the object of DryRunAdopt: the server sets defaults
// again that the adopted managers only owned because they created the object, and refuses changes of
// immutable fields, as it would for the apply.
//
// It does not predict one refusal: an apply with {} for a mapping in a custom resource
// that removes all fields of the mapping makes it null, which the kind's schema may forbid.
func DryRunDefaults(ctx context.Context, c *cluster.Cluster, resource cluster.Resource,
	object *unstructured.Unstructured,
	removed []string) (*unstructured.Unstructured, error) {
	patch, err := replacement(object, removed)
	if err != nil {
		return nil, err
	}
	settled, err := c.DryRunPatch(ctx, resource, object.GetNamespace(), object.GetName(), patch)
	return settled.Object, err
}

// An operation is an operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// replacement returns a JSON patch that replaces the fields of an object, so that the right to patch
// is enough. It leaves out fields that a patch may not set, and the
// resourceVersion: controllers may write at the same time.
func replacement(object *unstructured.Unstructured, removed []string) ([]byte, error) {
	var patch []operation
	for _, path := range removed {
		key := strings.TrimPrefix(path, ".")
		if inner, isMeta := strings.CutPrefix(key, "metadata."); isMeta && !strings.ContainsAny(inner, ".[") {
			patch = append(patch, absent("/metadata/"+inner)...)
		} else if !strings.ContainsAny(key, ".[") {
			patch = append(patch, absent("/"+escaped.Replace(key))...)
		}
	}
	for key, value := range object.Object {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata"}, key) {
			patch = append(patch, operation{"add", "/" + escaped.Replace(key), value})
		}
	}
	metadata, _, err := unstructured.NestedMap(object.Object, "metadata")
	if err != nil {
		return nil, err
	}
	for key, value := range metadata {
		if key != "managedFields" && key != "resourceVersion" {
			patch = append(patch, operation{"add", "/metadata/" + key, value})
		}
	}
	return json.Marshal(patch)
}

// absent returns operations that remove a field, whether it exists or not.
func absent(path string) []operation {
	return []operation{{"add", path, nil}, {Op: "remove", Path: path}}
}

// escaped escapes a key for a JSON pointer.
var escaped = strings.NewReplacer("~", "~0", "/", "~1")
