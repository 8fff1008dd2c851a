package apply

import (
	"errors"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
// held against it before the cluster has it.
type comingDefinition struct {
	manifest  *payload.Manifest
	prepare   func() (*crd.Definition, error)
	isChanged func() bool // for the cluster
}

// comingDefinitions are those of the payload, by the kinds that they define.
func (p *preview) comingDefinitions() map[schema.GroupKind]*comingDefinition {
	all := map[schema.GroupKind]*comingDefinition{}
	for _, m := range p.payload.Manifests {
		if m.IsTombstone() || m.GroupVersionKind().GroupKind() != kinds.CustomResourceDefinition {
			continue
		}
		kind, _ := cluster.Defined(m.Object())
		all[kind] = &comingDefinition{
			manifest: m,
			prepare:  sync.OnceValues(func() (*crd.Definition, error) { return crd.NewDefinition(m.Object().Object) }),
			isChanged: sync.OnceValue(func() bool {
				change, err := p.object(m)
				return err != nil || change.Action != Unchanged
			}),
		}
	}
	return all
}

// definitionOf is the definition that the payload has of a kind; nil if it has none.
func (p *preview) definitionOf(m *payload.Manifest) *comingDefinition {
	return p.coming[m.GroupVersionKind().GroupKind()]
}

// holdAgainst says what the definition of the payload has against a custom resource.
func (p *preview) holdAgainst(m *payload.Manifest) error {
	definition := p.definitionOf(m)
	if definition == nil {
		return nil
	}
	prepared, err := definition.prepare()
	if err != nil {
		return refusal{ResourceInvalid, "its definition, " + definition.manifest.ID().String() + ", is none: " + err.Error()}
	}
	var wrong []string
	for _, problem := range prepared.Check(p.ctx, ownership.Draft(m.Object(), inventory.Label, p.options.Release).Object) {
		if !problem.Unknown || !p.options.DropUnknownFields {
			wrong = append(wrong, problem.Message)
		}
	}
	if len(wrong) > 0 {
		return refusal{ResourceInvalid, "its definition, which comes with this release, does not allow it: " + strings.Join(wrong, "; ")}
	}
	return nil
}

// notYet says why the server can't judge an object before the apply, if that is all that is
// wrong with it.
func (p *preview) notYet(m *payload.Manifest, err error) (why string, isMet bool) {
	details := status(err).Details
	definition := p.definitionOf(m)
	switch {
	case says("does not support dry run")(err):
		return "a webhook that would be called does not support dry runs", true
	case apierrors.IsNotFound(err) && details != nil && p.brings(details.Kind, details.Name) != nil:
		return "it needs " + p.brings(details.Kind, details.Name).ID().String() + ", which is new, too", true
	case isInvalid(err) && definition != nil && definition.isChanged():
		return "the cluster has another version of its definition: it was held against that of this release", true
	case remedyFor(err).heals == byItself:
		return "the server does not take it now, and an apply would try again: " + oneLine(masked(m, err)), true
	}
	return "", false
}

// isInvalid says whether a server, or we, find fault with an object itself.
func isInvalid(err error) bool {
	var ours refusal
	return apierrors.IsInvalid(err) || len(unknownFields(err)) > 0 || errors.As(err, &ours) && ours.reason == ResourceInvalid
}

// kindComes says how a kind comes to be served with this release, if it does.
func (p *preview) kindComes(m *payload.Manifest) (why string, comes bool) {
	if definition := p.definitionOf(m); definition != nil {
		return definition.manifest.ID().String() + " is new, too: it was held against that", true
	}
	for _, other := range p.payload.Manifests {
		if other.GroupVersionKind().GroupKind() != kinds.APIService || other.IsTombstone() {
			continue
		}
		if servedGroup(other.Object()) == m.GroupVersionKind().Group {
			return "its API is new, too: " + other.ID().String(), true
		}
	}
	return "", false
}

// brings is the manifest of an object that a server misses; nil if there is none.
func (p *preview) brings(resource, name string) *payload.Manifest {
	for _, m := range p.payload.Manifests {
		if m.IsTombstone() || m.ID().Name != name {
			continue
		}
		if in, err := p.cluster.FindKind(p.requests, m.GroupVersionKind().GroupKind()); err == nil && in.Resource == resource {
			return m
		}
	}
	return nil
}

// asSaid is a look at an object as the release has it.
func (p *preview) asSaid(m *payload.Manifest, live *unstructured.Unstructured) *Look {
	return &Look{Live: live, Would: ownership.Draft(m.Object(), inventory.Label, p.options.Release)}
}
