// Package references finds the objects that an object refers to and needs: the Secrets and ConfigMaps of its pods, the
// Service behind an Ingress, the role of a binding, its owner.
//
// The package has rules for the fields of built-in kinds, and reads annotations of CustomResourceDefinitions that
// declare further fields. It reads no cluster. Optional references, and references to objects that Kubernetes creates
// itself, are left out.
//
// Start with NewGraph: it finds all references in a release. Definitions.References finds those of one object.
package references

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A Reference is a field of an object that refers to another object.
type Reference struct {
	Path []string // path to the field: keys of mappings, and indexes of lists
	To   kinds.ID
	Keys []string // keys of a ConfigMap or a Secret, if only these are needed
	Consequence
}

// A Consequence is the effect on an object while the object that it refers to does not exist.
type Consequence string

// The consequences.
const (
	Impaired  Consequence = ""          // the object does not do its work
	PodsWait  Consequence = "pods wait" // the pods of the object do not start; the object may be their claim
	Collected Consequence = "collected" // the object is deleted with the other one, its only owner
	// no effect: the other one gets rights from a binding, or is one of several owners
	Harmless Consequence = "harmless"
)

// Field returns the path as text, such as spec.tls[0].secretName.
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

// References returns the references of an object, in the order of the rules.
func (d Definitions) References(object *unstructured.Unstructured) []Reference {
	kind := object.GroupVersionKind().GroupKind()
	f := &finder{definitions: d, object: object}
	f.findAll(nil, rules[kind])
	if path := kinds.PodSpec(kind); path != nil {
		f.findAll(path, podRules)
		f.findAll(append(path, "initContainers"), containerRules)
		f.findAll(append(path, "containers"), containerRules)
	}
	if path := kinds.ClientConfigPath(kind); path != nil {
		f.findAll(path, clientConfigRules)
	}
	f.findAll(nil, d[kind].refers)
	if target, scales := kinds.ScaleTarget(object); scales && kind.Group == "autoscaling" {
		f.found = append(f.found, Reference{Path: []string{"spec", "scaleTargetRef", "name"}, To: target})
	}
	account := object.GetAnnotations()[corev1.ServiceAccountNameKey]
	if kind == kinds.Secret && account != "" {
		f.found = append(f.found, Reference{
			Path:        []string{"metadata", "annotations", corev1.ServiceAccountNameKey},
			To:          kinds.NewID(kinds.ServiceAccount, object.GetNamespace(), account),
			Consequence: Collected, // by the controller of tokens
		})
	}
	return append(f.found, d.owners(object)...)
}

// owners returns the references of an object to its owners.
func (d Definitions) owners(object *unstructured.Unstructured) (found []Reference) {
	owners, consequence := object.GetOwnerReferences(), Collected
	if len(owners) > 1 {
		consequence = Harmless
	}
	for i, owner := range owners {
		kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
		if id, isKnown := d.inScope(kind, object.GetNamespace()); isKnown {
			id.Name = owner.Name
			found = append(found, Reference{
				Path:        []string{"metadata", "ownerReferences", strconv.Itoa(i), "name"},
				To:          id,
				Consequence: consequence,
			})
		}
	}
	return found
}

// A finder collects the references of an object.
type finder struct {
	definitions Definitions
	object      *unstructured.Unstructured
	found       []Reference
}

// findAll finds the references of rules for the value at a path.
func (f *finder) findAll(prefix []string, rules []rule) {
	for _, r := range rules {
		f.find(r, nil, f.object.Object, append(slices.Clip(prefix), strings.Split(r.path, ".")...))
	}
}

// find follows a path below a value, through all items of lists, and appends the reference at its end.
func (f *finder) find(r rule, names []string, value any, path []string) {
	if items, isList := value.([]any); isList {
		for i, item := range items {
			f.find(r, append(slices.Clone(names), strconv.Itoa(i)), item, path)
		}
		return
	}
	within, isMapping := value.(map[string]any)
	if !isMapping || within["failurePolicy"] == "Ignore" { // the API server does without the webhook
		return
	}
	if len(path) > 1 {
		f.find(r, append(slices.Clone(names), path[0]), within[path[0]], path[1:])
		return
	}
	name, _ := within[path[0]].(string)
	isOptional, _ := within["optional"].(bool)
	instead, _ := within[r.overriddenBy].(string)
	if id := f.target(r, within); name != r.builtInName && name != "" && instead == "" && !isOptional && id.Kind != "" {
		id.Name = name
		f.found = append(f.found,
			Reference{
				Path:        append(slices.Clone(names), path[0]),
				To:          id,
				Keys:        r.keysOf(within),
				Consequence: r.consequence,
			})
	}
}

// keysOf returns the keys of a ConfigMap or a Secret that a reference needs: the key of a variable, the items of a
// volume, or a certificate and its key.
func (r rule) keysOf(within map[string]any) (keys []string) {
	if r.isCertificate {
		return []string{"tls.crt", "tls.key"}
	}
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
func (f *finder) target(r rule, within map[string]any) kinds.ID {
	if named, _ := within["kind"].(string); r.isKindNamed && named != r.to.Kind ||
		r.isGateway && named != "" && named != r.to.Kind {
		return kinds.ID{}
	}
	namespace := f.object.GetNamespace()
	if beside, _ := within["namespace"].(string); r.hasNamespace || (r.isDeclared || r.isGateway) && beside != "" {
		namespace = beside
	}
	id, _ := f.definitions.inScope(r.to, namespace)
	return id
}

// inScope returns an object ID of a kind without a name. If the kind is namespaced, the ID has the namespace. inScope
// returns false if the scope is unknown, or if a namespaced kind has no namespace.
func (d Definitions) inScope(kind schema.GroupKind, namespace string) (id kinds.ID, isKnown bool) {
	scope := cmp.Or(kinds.ScopeOf(kind), d[kind].scope)
	switch {
	case scope == kinds.Cluster:
		return kinds.NewID(kind, "", ""), true
	case scope == kinds.Namespaced && namespace != "":
		return kinds.NewID(kind, namespace, ""), true
	default:
		return kinds.ID{}, false
	}
}

// Describe returns a text with the first manifest that refers to an object, its field, and the number of others.
func Describe(by kinds.ID, place, field string, others int) string {
	text := fmt.Sprintf("%s (%s) refers to it in %s", by, place, field)
	if others > 0 {
		text += fmt.Sprintf(", and %d more do", others)
	}
	return text
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

// A Graph contains all references in a release.
type Graph[M Referrer] struct {
	References [][]Reference         // references by the index of the manifest; none for tombstones
	Uses       map[kinds.ID][]Use[M] // uses by the referenced objects, without harmless references
	Creators   map[kinds.ID]M        // manifests by the objects that controllers create for them
}

// NewGraph returns the graph of the manifests of a release. The manifests of the previous release may have the
// definitions of its custom resources.
func NewGraph[M Referrer](manifests, before []M) *Graph[M] {
	definitions := definitionsOf(manifests, before)
	g := &Graph[M]{
		References: make([][]Reference, len(manifests)),
		Uses:       map[kinds.ID][]Use[M]{},
		Creators:   map[kinds.ID]M{},
	}
	for i, m := range manifests {
		if m.IsTombstone() {
			continue
		}
		g.References[i] = definitions.References(m.Object())
		for _, reference := range g.References[i] {
			if reference.Consequence != Harmless {
				g.Uses[reference.To] = append(g.Uses[reference.To], Use[M]{m, reference})
			}
		}
		for _, created := range definitions.CreatedFor(m.Object()) {
			g.Creators[created] = m
		}
	}
	return g
}
