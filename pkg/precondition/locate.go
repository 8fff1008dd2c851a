package precondition

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A place is the resource of the object of a manifest.
type place struct {
	manifest *payload.Manifest
	resource cluster.Resource  // empty if it is not known
	isServed bool              // now, by the cluster
	unserved *UnservedManifest // why it has no resource; nil if it has one, or needs none
}

// id returns the ID of the object, without the namespace of a cluster-scoped one.
func (p place) id() kinds.ID {
	id := p.manifest.ID()
	if !p.resource.Namespaced {
		id.Namespace = ""
	}
	return id
}

// locate finds the places of all manifests.
func (input Input) locate(ctx context.Context, c *cluster.Cluster) []place {
	ours := definitionsOf(input.Payload)
	places := ours.locateAll(ctx, c, input.Payload.Manifests)
	if slices.ContainsFunc(places, func(p place) bool { return p.unserved != nil }) {
		c.Refresh() // cached discovery may be outdated
		places = ours.locateAll(ctx, c, input.Payload.Manifests)
	}
	return places
}

func unservedManifests(places []place) []UnservedManifest {
	var found []UnservedManifest
	for _, p := range places {
		if p.unserved != nil {
			found = append(found, *p.unserved)
		}
	}
	return found
}

// withoutNamespace returns the manifests of namespaced kinds that have no namespace.
func withoutNamespace(places []place) []*payload.Manifest {
	var found []*payload.Manifest
	for _, p := range places {
		if p.resource.Namespaced && p.manifest.Object().GetNamespace() == "" {
			found = append(found, p.manifest)
		}
	}
	return found
}

// definitions are the kinds that a payload defines.
type definitions struct {
	kinds    map[schema.GroupKind][]cluster.Resource
	versions map[schema.GroupVersion]bool // versions of aggregated APIs, whose kinds are not known yet
}

// definitionsOf finds the kinds that a payload defines.
func definitionsOf(p *payload.Payload) definitions {
	ours := definitions{map[schema.GroupKind][]cluster.Resource{}, map[schema.GroupVersion]bool{}}
	for _, m := range p.Manifests {
		switch kind := m.GroupVersionKind().GroupKind(); {
		case m.IsTombstone():
		case kind == kinds.CustomResourceDefinition:
			kind, resources := cluster.DefinedKind(m.Object())
			ours.kinds[kind] = append(ours.kinds[kind], resources...)
		case kind == kinds.APIService:
			ours.versions[schema.GroupVersion{
				Group:   text(m.Object(), "spec", "group"),
				Version: text(m.Object(), "spec", "version"),
			}] = true
		}
	}
	return ours
}

func text(object *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(object.Object, path...)
	return value
}

func (d definitions) locateAll(ctx context.Context, c *cluster.Cluster, manifests []*payload.Manifest) []place {
	places := make([]place, len(manifests))
	for i, m := range manifests {
		places[i] = d.locate(ctx, c, m)
	}
	return places
}

// locate finds the place of one manifest. The payload's own definition of a kind takes precedence:
// it may remove a version that the cluster serves now.
func (d definitions) locate(ctx context.Context, c *cluster.Cluster, m *payload.Manifest) place {
	kind := m.GroupVersionKind()
	if m.IsTombstone() {
		resource, err := c.FindKind(ctx, kind.GroupKind()) // any version will do
		return place{manifest: m, resource: resource, isServed: err == nil}
	}
	resource, err := c.Find(ctx, kind)
	p := place{manifest: m, resource: resource, isServed: err == nil}
	if defined := d.kinds[kind.GroupKind()]; len(defined) > 0 {
		i := slices.IndexFunc(defined, func(r cluster.Resource) bool { return r.Version == kind.Version })
		if i < 0 {
			p.unserved = &UnservedManifest{Manifest: m, Has: defined[0].Version, InOurs: true}
		} else if !p.isServed {
			p.resource = defined[i]
		}
		return p
	}
	switch {
	case err == nil, d.versions[kind.GroupVersion()]:
	case !errors.Is(err, cluster.ErrNotServed):
		p.unserved = &UnservedManifest{Manifest: m, Err: err}
	default:
		p.unserved = &UnservedManifest{Manifest: m}
		if other, err := c.FindKind(ctx, kind.GroupKind()); err == nil {
			p.unserved.Has = other.Version
		}
	}
	return p
}
