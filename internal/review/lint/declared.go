package lint

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
)

// checkDeclaredReference looks for mistakes in the annotations that declare references of custom resources.
func checkDeclaredReference(s *subject, r *reporter) {
	for _, m := range s.normal {
		for _, key := range []string{references.ReferencesAnnotation, references.MakesAnnotation} {
			text, isSet := m.annotations[key]
			if !isSet {
				continue
			}
			if m.groupKind() != kinds.CustomResourceDefinition {
				r.field(m, annotation(key), "%s is only read on a CustomResourceDefinition: drop it", key)
				continue
			}
			declared, problems := references.ParseDeclarations(text)
			for _, declaration := range declared {
				if problem := s.wrongDeclaration(m, declaration); problem != "" {
					problems = append(problems, problem)
				}
			}
			for _, problem := range problems {
				r.field(m, annotation(key), "%s: %s", key, problem)
			}
		}
	}
}

// wrongDeclaration returns the problem of a declaration of a definition; "" if there is none.
func (s *subject) wrongDeclaration(definition *manifest, declared references.Declaration) string {
	versions := definition.versions()
	hasField := declared.Field == "metadata.name" ||
		slices.ContainsFunc(sortedKeys(versions), func(version string) bool {
			return hasStringAt(fieldAt(versions[version], []string{"schema", "openAPIV3Schema"}),
				strings.Split(declared.Field, "."))
		})
	kind, isKnown := declared.Kind, s.scopeOfKind(declared.Kind) != kinds.Unknown
	switch {
	case !hasField:
		return "no version of the definition has a text field " + declared.Field + ": correct it"
	case isKnown:
		return ""
	case kinds.Scheme().IsGroupRegistered(kind.Group):
		return "Kubernetes has no kind " + kind.String() + replacementHint(kind, s.config.kubernetes()) +
			": write the kind, then a dot and its group if it has one"
	case s.definesGroup(kind.Group):
		return "the payload defines no kind " + kind.Kind + " in " + kind.Group + ": correct it"
	default:
		return "" // others define it
	}
}

// scopeOfKind returns the scope of a kind of Kubernetes, of the payload or of the previous one.
func (s *subject) scopeOfKind(kind schema.GroupKind) kinds.Scope {
	if known := kinds.ScopeOf(kind); known != kinds.Unknown {
		return known
	}
	for _, x := range []*index{s.index, s.previous} {
		if x == nil {
			continue
		}
		for _, definition := range x.defines[kind] {
			return kinds.Scope(definition.text("spec", "scope"))
		}
	}
	return kinds.Unknown
}

// hasStringAt reports whether a schema has a string at a path of keys, which leads through all items of lists. A schema
// that keeps unknown fields may have any.
func hasStringAt(value any, path []string) bool {
	schema, _ := value.(map[string]any)
	if items, isList := schema["items"]; isList {
		return hasStringAt(items, path)
	}
	if len(path) == 0 {
		return schema["type"] == "string" || schema["x-kubernetes-preserve-unknown-fields"] == true
	}
	properties, _ := schema["properties"].(map[string]any)
	if within, isListed := properties[path[0]]; isListed {
		return hasStringAt(within, path[1:])
	}
	if values, isMap := schema["additionalProperties"].(map[string]any); isMap {
		return hasStringAt(values, path[1:])
	}
	return schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"] == true
}

// definesGroup reports whether the payload, or the previous one, defines a kind of a group.
func (s *subject) definesGroup(group string) bool {
	for _, x := range []*index{s.index, s.previous} {
		if x != nil && slices.ContainsFunc(slices.Collect(maps.Keys(x.defines)), func(kind schema.GroupKind) bool {
			return kind.Group == group
		}) {
			return true
		}
	}
	return false
}
