package references

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// Annotations of a CustomResourceDefinition with the references of its objects, and the objects that its controller
// creates. Each line is "FIELD: KIND", such as "spec.secretName: Secret". A kind outside of the core group has its
// group: "WidgetClass.shop.example".
const (
	ReferencesAnnotation = "runlevel.dev/references"
	MakesAnnotation      = "runlevel.dev/makes"
)

// A Declaration is a field of a custom resource that has the name of an object of a kind.
type Declaration struct {
	Field string // keys with dots between them; lists are followed through all their items
	Kind  schema.GroupKind
}

// ParseDeclarations returns the declarations of an annotation, and the problems of invalid ones.
func ParseDeclarations(text string) (declared []Declaration, problems []string) {
	for entry := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == ',' }) {
		field, kind, isPair := strings.Cut(entry, ":")
		declaration := Declaration{strings.TrimSpace(field), schema.ParseGroupKind(strings.TrimSpace(kind))}
		isName := func(text string) bool { return text != "" && !strings.ContainsAny(text, "[]{}/*$ \"'") }
		switch {
		case strings.TrimSpace(entry) == "":
		case !isPair || !isName(declaration.Kind.Kind):
			problems = append(problems,
				fmt.Sprintf("%q has no kind: write FIELD: KIND, such as spec.secretName: Secret",
					strings.TrimSpace(entry)))
		case slices.ContainsFunc(strings.Split(declaration.Field, "."), func(key string) bool { return !isName(key) }):
			problems = append(problems,
				fmt.Sprintf("%q is not a field: write its keys with dots between them, such as spec.secretName; lists "+
					"need no brackets", declaration.Field))
		default:
			declared = append(declared, declaration)
		}
	}
	return declared, problems
}

// Definitions contains the declarations of CustomResourceDefinitions, by the kinds that they define. An empty value is
// enough for built-in kinds.
type Definitions map[schema.GroupKind]definition

// A definition contains the properties of a kind of custom resources.
type definition struct {
	scope           kinds.Scope
	refers, creates []rule
}

// definitionsOf returns the definitions of a release, and those of the previous release for kinds that it does not
// define.
func definitionsOf[M Referrer](manifests, before []M) Definitions {
	found, old := Definitions{}, Definitions{}
	for i, m := range slices.Concat(manifests, before) {
		switch {
		case m.IsTombstone():
		case i < len(manifests):
			found.Add(m.Object())
		default:
			old.Add(m.Object())
		}
	}
	maps.Copy(old, found)
	return old
}

// Add adds the declarations of an object if it is a CustomResourceDefinition. The declarations of variants of a
// definition are combined.
func (d Definitions) Add(object *unstructured.Unstructured) {
	if object.GroupVersionKind().GroupKind() != kinds.CustomResourceDefinition {
		return
	}
	kind := kinds.DefinedBy(object)
	declared := d[kind]
	scope, _, _ := unstructured.NestedString(object.Object, "spec", "scope")
	declared.scope = kinds.Scope(scope)
	declared.refers = appendDeclared(declared.refers, object.GetAnnotations()[ReferencesAnnotation])
	declared.creates = appendDeclared(declared.creates, object.GetAnnotations()[MakesAnnotation])
	d[kind] = declared
}

// appendDeclared appends the rules of an annotation, without duplicates.
func appendDeclared(rules []rule, text string) []rule {
	declared, _ := ParseDeclarations(text)
	for _, declaration := range declared {
		r := rule{path: declaration.Field, to: declaration.Kind, isDeclared: true}
		if !slices.Contains(rules, r) {
			rules = append(rules, r)
		}
	}
	return rules
}
