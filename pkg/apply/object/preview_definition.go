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

// A comingDefinition is a CustomResourceDefinition of the payload: custom resources can be validated against it before
// the cluster has the definition. For a kind without a definition in the payload, the pointer is nil.
type comingDefinition struct {
	manifest *payload.Manifest
	preview  func() (Change, error) // previews the definition itself
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
			continue // it defines a built-in kind of Kubernetes
		}
		all[kind] = &comingDefinition{
			manifest: m,
			preview:  sync.OnceValues(func() (Change, error) { return p.preview(m) }),
			prepare:  sync.OnceValues(func() (*crd.Definition, error) { return crd.NewDefinition(m.Object().Object) }),
		}
	}
	return all
}

// definitionOf returns the definition that the payload has of the kind of an object.
func (a *Applier) definitionOf(m *payload.Manifest) *comingDefinition {
	return a.coming[m.GroupVersionKind().GroupKind()]
}

// isChanged reports whether the apply would change the definition, so that dry runs of custom
// resources against the present definition are not enough.
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

// validate returns an error if a definition of the payload does not allow a custom resource, as it would be.
func (p *Previewer) validate(definition *comingDefinition, o *liveObject, would *unstructured.Unstructured) error {
	if definition == nil {
		return nil
	}
	if _, err := definition.preview(); err != nil {
		return refusal{ResourceInvalid,
			"its definition, " + definition.manifest.ID().String() + ", would not be applied"}
	}
	prepared, err := definition.prepare()
	if err != nil {
		return refusal{ResourceInvalid,
			"its definition, " + definition.manifest.ID().String() + ", is invalid: " + err.Error()}
	}
	var wrong []string
	for _, problem := range p.problems(prepared, o, would) {
		text := describe(o.Manifest, problem)
		if problem.Unknown && p.options.DropUnknownFields {
			p.handler.OnWarnings(o.Manifest, []string{text + ": dropped"})
		} else {
			wrong = append(wrong, text)
		}
	}
	if len(wrong) > 0 {
		return refusal{ResourceInvalid,
			"its definition, which comes with this release, does not allow it: " + strings.Join(wrong, "; ")}
	}
	return nil
}

// problems returns the schema problems of a custom resource. If it exists, unknown fields count only in the manifest,
// and other problems in the object as it would be.
func (p *Previewer) problems(prepared *crd.Definition, o *liveObject,
	would *unstructured.Unstructured) []crd.Problem {
	problems := prepared.Check(p.requestCtx, p.desired(o.Manifest).Object)
	if o.live == nil {
		return problems
	}
	problems = slices.DeleteFunc(problems, func(problem crd.Problem) bool { return !problem.Unknown })
	for _, problem := range prepared.CheckUpdate(p.requestCtx, o.live.Object, would.Object) {
		if !problem.Unknown {
			problems = append(problems, problem)
		}
	}
	return problems
}

// describe returns a schema problem in words. If the object holds Secrets, it only names the field, since the message
// may quote the value.
func describe(m *payload.Manifest, problem crd.Problem) string {
	if holdsSecrets(m) && !problem.Unknown {
		return strings.Join(problem.Path, ".") + " is wrong; its value is not shown, for it may be a Secret's"
	}
	return strings.TrimSuffix(problem.Message, ": the API server drops it")
}
