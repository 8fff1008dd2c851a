package object

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/crd"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A comingDefinition is a CustomResourceDefinition of the payload: custom resources can be
// held against it before the cluster has it. Nil is one that the payload does not have.
type comingDefinition struct {
	manifest *payload.Manifest
	foresee  func() (Change, error) // what would come of it
	prepare  func() (*crd.Definition, error)
}

// comingDefinitions are those of the payload, by the kinds that they define.
func (p *Previewer) comingDefinitions() map[schema.GroupKind]*comingDefinition {
	all := map[schema.GroupKind]*comingDefinition{}
	for _, m := range p.payload.Manifests {
		if m.IsTombstone() || m.GroupVersionKind().GroupKind() != kinds.CustomResourceDefinition {
			continue
		}
		kind, _ := cluster.Defined(m.Object())
		if kinds.ScopeOf(kind) != kinds.Unknown {
			continue // it claims to define a kind of Kubernetes itself
		}
		all[kind] = &comingDefinition{
			manifest: m,
			foresee: sync.OnceValues(func() (Change, error) {
				return p.insist(func() (Change, error) { return p.object(m) })
			}),
			prepare: sync.OnceValues(func() (*crd.Definition, error) { return crd.NewDefinition(m.Object().Object) }),
		}
	}
	return all
}

// definitionOf is the definition that the payload has of a kind.
func (p *Previewer) definitionOf(m *payload.Manifest) *comingDefinition {
	return p.coming[m.GroupVersionKind().GroupKind()]
}

// isChanged says whether the cluster would go by another definition after the apply, so that
// what it says of custom resources before is not enough.
func (d *comingDefinition) isChanged() bool {
	if d == nil {
		return false
	}
	switch change, err := d.foresee(); {
	case err != nil || change.Action == Unchanged:
		return false
	case change.Action == Configured:
		return change.Look.Live.GetGeneration() != change.Look.Would.GetGeneration()
	default:
		return true
	}
}

// isNamespaced says whether the objects of a kind whose definition is sound will be in namespaces.
func (d *comingDefinition) isNamespaced() bool {
	if d == nil {
		return false
	}
	prepared, err := d.prepare()
	return err == nil && prepared.Scope() == "Namespaced"
}

// alsoBy asks the definition of the payload about an object that the server takes, if the
// server goes by another one. One that is not there has no live state.
func (p *Previewer) alsoBy(definition *comingDefinition, m *payload.Manifest, live, would *unstructured.Unstructured) error {
	if !definition.isChanged() {
		return nil
	}
	return p.hold(definition, m, live, would)
}

// hold says what a definition has against a custom resource.
func (p *Previewer) hold(definition *comingDefinition, m *payload.Manifest, live, would *unstructured.Unstructured) error {
	if definition == nil {
		return nil
	}
	if _, err := definition.foresee(); err != nil {
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

// problems are those of a custom resource. Of one that is there, an apply refuses unknown
// fields only if its manifest has them, and whatever else is wrong with all that it would be.
func (p *Previewer) problems(prepared *crd.Definition, m *payload.Manifest, live, would *unstructured.Unstructured) []crd.Problem {
	problems := prepared.Check(p.requests, p.said(m, nil).Object)
	if live == nil {
		return problems
	}
	problems = slices.DeleteFunc(problems, func(problem crd.Problem) bool { return !problem.Unknown })
	for _, problem := range prepared.CheckUpdate(p.requests, live.Object, would.Object) {
		if !problem.Unknown {
			problems = append(problems, problem)
		}
	}
	return problems
}

// describe says what is wrong with a field. Of what holds Secrets no more than the field is
// named: the sentence may quote its value.
func describe(m *payload.Manifest, problem crd.Problem) string {
	if holdsSecrets(m) && !problem.Unknown {
		return strings.Join(problem.Path, ".") + " is wrong; its value is not shown, for it may be a Secret's"
	}
	return strings.TrimSuffix(problem.Message, ": the API server drops it")
}
