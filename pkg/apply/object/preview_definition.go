package object

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/crd"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A comingDefinition is a CustomResourceDefinition of the payload: custom resources can be checked against it before
// the cluster has it. Nil is one that the payload does not have.
type comingDefinition struct {
	manifest *payload.Manifest
	preview  func() (Change, error) // what would come of it
	prepare  func() (*crd.Definition, error)
}

// comingDefinitions returns the definitions of the payload, by the kinds that they define.
func (p *Previewer) comingDefinitions() map[schema.GroupKind]*comingDefinition {
	all := map[schema.GroupKind]*comingDefinition{}
	for _, m := range p.payload.Manifests {
		if m.IsTombstone() || m.GroupVersionKind().GroupKind() != kinds.CustomResourceDefinition {
			continue
		}
		kind, _ := cluster.DefinedKind(m.Object())
		if kinds.ScopeOf(kind) != kinds.Unknown {
			continue // it claims to define a kind of Kubernetes itself
		}
		all[kind] = &comingDefinition{
			manifest: m,
			preview: sync.OnceValues(func() (Change, error) {
				return p.withRetries(func() (Change, error) { return p.object(m) })
			}),
			prepare: sync.OnceValues(func() (*crd.Definition, error) { return crd.NewDefinition(m.Object().Object) }),
		}
	}
	return all
}

// definitionOf returns the definition that the payload has of a kind.
func (p *Previewer) definitionOf(m *payload.Manifest) *comingDefinition {
	return p.coming[m.GroupVersionKind().GroupKind()]
}

// isChanged reports whether the cluster would go by another definition after the apply, so that
// its result for custom resources before is not enough.
func (d *comingDefinition) isChanged() bool {
	if d == nil {
		return false
	}
	switch change, err := d.preview(); {
	case err != nil || change.Action == Unchanged:
		return false
	case change.Action == Configured:
		return change.Look.Live.GetGeneration() != change.Look.Would.GetGeneration()
	default:
		return true
	}
}

// isNamespaced reports whether the objects of a kind whose definition is sound will be in namespaces.
func (d *comingDefinition) isNamespaced() bool {
	if d == nil {
		return false
	}
	prepared, err := d.prepare()
	return err == nil && prepared.Scope() == "Namespaced"
}

// validateChanged is validate for an object that the server takes, if the server has another version of the definition.
// Live is nil of an object that is not there.
func (p *Previewer) validateChanged(definition *comingDefinition, m *payload.Manifest, live, would *unstructured.Unstructured) error {
	if !definition.isChanged() {
		return nil
	}
	return p.validate(definition, m, live, would)
}

// validate returns why a definition of the payload does not allow a custom resource.
func (p *Previewer) validate(definition *comingDefinition, m *payload.Manifest, live, would *unstructured.Unstructured) error {
	if definition == nil {
		return nil
	}
	if _, err := definition.preview(); err != nil {
		return refusal{ResourceInvalid, "its definition, " + definition.manifest.ID().String() + ", would not be applied"}
	}
	prepared, err := definition.prepare()
	if err != nil {
		return refusal{ResourceInvalid, "its definition, " + definition.manifest.ID().String() + ", is none: " + err.Error()}
	}
	var wrong []string
	for _, problem := range p.problems(prepared, m, live, would) {
		text := describe(m, problem)
		if problem.Unknown && p.options.DropUnknownFields {
			p.handler.Warned(m, []string{text + ": left out"})
		} else {
			wrong = append(wrong, text)
		}
	}
	if len(wrong) > 0 {
		return refusal{ResourceInvalid, "its definition, which comes with this release, does not allow it: " + strings.Join(wrong, "; ")}
	}
	return nil
}

// problems returns those of a custom resource. If it is there, an apply refuses unknown fields only if the manifest has
// them, and any other problem of the object as it would be.
func (p *Previewer) problems(prepared *crd.Definition, m *payload.Manifest, live, would *unstructured.Unstructured) []crd.SchemaProblem {
	problems := prepared.Check(p.requests, p.desired(m, nil).Object)
	if live == nil {
		return problems
	}
	problems = slices.DeleteFunc(problems, func(problem crd.SchemaProblem) bool { return !problem.Unknown })
	for _, problem := range prepared.CheckUpdate(p.requests, live.Object, would.Object) {
		if !problem.Unknown {
			problems = append(problems, problem)
		}
	}
	return problems
}

// describe returns what is wrong with a field. Of an object that holds Secrets it only names the field: the sentence
// may quote the value.
func describe(m *payload.Manifest, problem crd.SchemaProblem) string {
	if holdsSecrets(m) && !problem.Unknown {
		return strings.Join(problem.Path, ".") + " is wrong; its value is not shown, for it may be a Secret's"
	}
	return strings.TrimSuffix(problem.Message, ": the API server drops it")
}
