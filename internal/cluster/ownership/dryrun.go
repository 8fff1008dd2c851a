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

// DryRunAdopt takes those fields out of an object that would leave it if some managers' fields
// were taken over before the apply, for dry runs, which can't take over anything. The
// object is the answer to a dry run of the apply, with its managedFields, and live is what
// is there. It returns the paths of what it took out, in order, as the server writes them.
//
// It does what the server does, as far as that can be done without the kind's schema. The
// server then sets defaults: see DryRunDefaults.
func DryRunAdopt(would *unstructured.Unstructured, live metav1.Object, from []string) []string {
	if slices.ContainsFunc(live.GetManagedFields(), isOurs) {
		return nil
	}
	adopted, kept := fieldpath.NewSet(), fieldpath.NewSet()
	for _, entry := range live.GetManagedFields() {
		set, err := fieldsOf(entry)
		switch {
		case err != nil: // the apply would have failed for it
		case isAdopted(entry, from):
			adopted = adopted.Union(set)
		default:
			kept = kept.Union(set)
		}
	}
	for _, entry := range would.GetManagedFields() {
		if set, err := fieldsOf(entry); err == nil && isOurs(entry) {
			kept = kept.Union(set)
		}
	}
	kept.Insert(fieldpath.MakePathOrDie("metadata", "name")) // which has no owner
	l := leaver{object: would.Object}
	l.leave(nil, adopted, kept)
	return l.left
}

// A leaver takes fields out of an object.
type leaver struct {
	object map[string]any
	left   []string
}

// leave takes out what is adopted and not kept. What has fields of the adopted is theirs,
// too, if it is a field and not the item of a list, and leaves with all that is in it,
// unless another manager keeps any of that. No manager keeps an item by one of its fields alone: an
// item without its key would be none.
func (l *leaver) leave(within fieldpath.Path, adopted, kept *fieldpath.Set) {
	gone := false
	for _, step := range steps(adopted) {
		path := append(slices.Clone(within), step)
		name := path.String()
		if !fields.Has(l.object, name) {
			continue
		}
		if !isMember(adopted, step) || isMember(kept, step) {
			l.leave(path, adopted.WithPrefix(step), kept.WithPrefix(step))
			continue
		}
		fields.Remove(l.object, name)
		l.left = append(l.left, name)
		gone = true
	}
	if gone && len(within) > 0 {
		fields.EmptyToNull(l.object, within.String()) // so does the server
	}
}

// isMember says whether a step is in a set, or is a field that has something in it.
func isMember(set *fieldpath.Set, step fieldpath.PathElement) bool {
	return set.Members.Has(step) || step.FieldName != nil && !set.WithPrefix(step).Empty()
}

// steps are the first steps of the paths of a set, in order.
func steps(set *fieldpath.Set) []fieldpath.PathElement {
	all := set.Members.Copy()
	set.Children.Iterate(all.Insert)
	return slices.Collect(all.All())
}

// DryRunDefaults asks the server what it would make of an object that DryRunAdopt has left: defaults come
// back that the adopted managers only owned because they made the object, and what can't be
// changed is refused, as it would be in the end.
//
// It does not predict one refusal: an apply that says {} of a mapping in a custom resource,
// and takes away all that was in it, makes null of it, which the kind's schema may forbid.
func DryRunDefaults(ctx context.Context, c *cluster.Cluster, in cluster.Resource, object *unstructured.Unstructured, left []string) (*unstructured.Unstructured, error) {
	patch, err := replacement(object, left)
	if err != nil {
		return nil, err
	}
	settled, err := c.DryRunPatch(ctx, in, object.GetNamespace(), object.GetName(), patch)
	return settled.Object, err
}

// An operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// replacement is a JSON patch that makes an object like this one, so that it takes no
// right to update it beside that to patch. It leaves aside what may not be said, and which
// version of the object it is for: controllers may write at the same time.
func replacement(object *unstructured.Unstructured, left []string) ([]byte, error) {
	var patch []operation
	for _, path := range left {
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

// absent takes away what need not be there.
func absent(path string) []operation {
	return []operation{{"add", path, nil}, {Op: "remove", Path: path}}
}

// escaped writes a key as it is in paths of JSON patches.
var escaped = strings.NewReplacer("~", "~0", "/", "~1")
