// Package references finds the objects that an object refers to and needs: the Secrets and ConfigMaps of its pods, the
// Service behind an Ingress, the role of a binding.
//
// It knows the fields of built-in kinds and reads no cluster. Optional references, and references to objects that
// Kubernetes creates itself, are left out.
//
// Of is the call to start from; Uses does the same for all manifests of a release, by the referenced objects.
package references

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A Reference is a field of an object that refers to another object.
type Reference struct {
	Path []string // to the field: keys of mappings, and indexes of lists
	To   kinds.ID
	Keys []string // of a ConfigMap or a Secret, if only these are needed
	// IsGrant is true if the object does not fail without the other: a binding gives an account its rights.
	IsGrant bool
}

// Field returns the path for people, such as spec.tls[0].secretName.
func (r Reference) Field() string {
	var text strings.Builder
	for i, key := range r.Path {
		if _, err := strconv.Atoi(key); err == nil {
			text.WriteString("[" + key + "]")
			continue
		}
		if i > 0 {
			text.WriteString(".")
		}
		text.WriteString(key)
	}
	return text.String()
}

// Of returns the references of an object, in the order of the rules.
func Of(object *unstructured.Unstructured) []Reference {
	var found []Reference
	kind := object.GroupVersionKind().GroupKind()
	for _, r := range rules[kind] {
		r.find(object, nil, object.Object, strings.Split(r.path, "."), &found)
	}
	if prefix, hasPods := podSpecs[kind]; hasPods {
		for _, r := range ofPods {
			r.find(object, nil, object.Object, append(strings.Split(prefix, "."), strings.Split(r.path, ".")...), &found)
		}
	}
	if target, scales := kinds.ScaleTarget(object); scales && kind.Group == "autoscaling" {
		found = append(found, Reference{Path: []string{"spec", "scaleTargetRef", "name"}, To: target})
	}
	return found
}

// find follows a path below a value, through all items of lists, and appends the reference at its end.
func (r rule) find(object *unstructured.Unstructured, at []string, value any, path []string, found *[]Reference) {
	if items, isList := value.([]any); isList {
		for i, item := range items {
			r.find(object, append(slices.Clone(at), strconv.Itoa(i)), item, path, found)
		}
		return
	}
	within, isMapping := value.(map[string]any)
	if !isMapping || within["failurePolicy"] == "Ignore" { // the API server ignores it if the webhook can't be called
		return
	}
	if len(path) > 1 {
		r.find(object, append(slices.Clone(at), path[0]), within[path[0]], path[1:], found)
		return
	}
	name, _ := within[path[0]].(string)
	isOptional, _ := within["optional"].(bool)
	instead, _ := within[r.unless].(string)
	if to := r.target(object, within); name != r.made && name != "" && instead == "" && !isOptional && to.Kind != "" {
		to.Name = name
		*found = append(*found, Reference{Path: append(slices.Clone(at), path[0]), To: to, Keys: keysOf(within), IsGrant: r.isGrant})
	}
}

// keysOf returns the keys of a ConfigMap or a Secret that a reference needs: the one of a variable, or the items of a volume.
func keysOf(within map[string]any) (keys []string) {
	if key, isOne := within["key"].(string); isOne {
		keys = append(keys, key)
	}
	items, _ := within["items"].([]any)
	for _, item := range items {
		fields, _ := item.(map[string]any)
		if key, hasKey := fields["key"].(string); hasKey {
			keys = append(keys, key)
		}
	}
	return keys
}

// target returns the object that a rule's field refers to, without its name; empty if the rule is for another kind.
func (r rule) target(object *unstructured.Unstructured, within map[string]any) kinds.ID {
	to := kinds.ID{Group: r.to.Group, Kind: r.to.Kind}
	if named, _ := within["kind"].(string); r.isKindNamed && named != r.to.Kind {
		return kinds.ID{}
	}
	if kinds.ScopeOf(schema.GroupKind{Group: to.Group, Kind: to.Kind}) != kinds.Cluster {
		to.Namespace = object.GetNamespace()
		if r.hasNamespace {
			to.Namespace, _ = within["namespace"].(string)
		}
		if to.Namespace == "" {
			return kinds.ID{}
		}
	}
	return to
}

// A Referrer is a manifest of a release, which may refer to others.
type Referrer interface {
	Object() *unstructured.Unstructured
	ID() kinds.ID
	IsTombstone() bool
}

// A Use is a reference with the manifest that has it.
type Use[M Referrer] struct {
	By M
	Reference
}

// Describe returns a text about which manifest refers to an object, where, and how many others do.
func Describe(by kinds.ID, place, field string, others int) string {
	text := fmt.Sprintf("%s (%s) refers to it in %s", by, place, field)
	if others > 0 {
		text += fmt.Sprintf(", and %d more do", others)
	}
	return text
}

// Uses returns the references of manifests, by the referenced objects. A tombstone refers to nothing.
func Uses[M Referrer](manifests []M) map[kinds.ID][]Use[M] {
	found := map[kinds.ID][]Use[M]{}
	for _, m := range manifests {
		if m.IsTombstone() {
			continue
		}
		for _, reference := range Of(m.Object()) {
			if reference.IsGrant {
				continue
			}
			found[reference.To] = append(found[reference.To], Use[M]{m, reference})
		}
	}
	return found
}
