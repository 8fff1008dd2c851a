package apply

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/crd"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/ownership"
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
func (p *preview) comingDefinitions() map[schema.GroupKind]*comingDefinition {
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
func (p *preview) definitionOf(m *payload.Manifest) *comingDefinition {
	return p.coming[m.GroupVersionKind().GroupKind()]
}

// isChanged says whether the cluster would have another definition after the apply, so that
// what it says of custom resources before tells little.
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

// alsoBy asks the definition of the payload about an object that the server takes, if the
// server goes by another one. It is nothing, and nothing would become of it, if it is not
// there.
func (p *preview) alsoBy(definition *comingDefinition, m *payload.Manifest, live, would *unstructured.Unstructured) error {
	if !definition.isChanged() {
		return nil
	}
	return p.hold(definition, m, live, would)
}

// hold says what a definition has against a custom resource: against the fields that its
// manifest says, and against all that it would be.
func (p *preview) hold(definition *comingDefinition, m *payload.Manifest, live, would *unstructured.Unstructured) error {
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
	problems := prepared.Check(p.requests, ownership.Draft(m.Object(), inventory.Label, p.options.Release).Object)
	if live != nil {
		said := problems
		problems = prepared.CheckUpdate(p.requests, live.Object, would.Object)
		problems = append(withUnknown(said, true), withUnknown(problems, false)...)
	}
	var wrong []string
	for _, problem := range problems {
		switch {
		case !problem.Unknown:
			wrong = append(wrong, describe(m, problem))
		case p.options.DropUnknownFields:
			p.warn(m, []string{describe(m, problem) + ": left out"})
		default:
			wrong = append(wrong, describe(m, problem))
		}
	}
	if len(wrong) > 0 {
		return refusal{ResourceInvalid, "its definition, which comes with this release, does not allow it: " + strings.Join(wrong, "; ")}
	}
	return nil
}

// withUnknown are the problems that are about unknown fields, or those that are not.
func withUnknown(problems []crd.Problem, isUnknown bool) []crd.Problem {
	var some []crd.Problem
	for _, problem := range problems {
		if problem.Unknown == isUnknown {
			some = append(some, problem)
		}
	}
	return some
}

// describe says what is wrong with a field. Of what holds Secrets no more than the field is
// named: the sentence may quote its value.
func describe(m *payload.Manifest, problem crd.Problem) string {
	if holdsSecrets(m) && !problem.Unknown {
		return strings.Join(problem.Path, ".") + " is wrong; its value is not shown, for it may be a Secret's"
	}
	return strings.TrimSuffix(problem.Message, ": the API server drops it")
}
