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

// A place is where the object of a manifest is, or is going to be.
type place struct {
	manifest *payload.Manifest
	resource cluster.Resource  // empty if it is not known
	isServed bool              // now, by the cluster
	unserved *UnservedManifest // why it has no place; nil if it has one, or needs none
}

// id is the object, without a namespace where there can be none.
func (p place) id() kinds.ID {
	id := p.manifest.ID()
	if !p.resource.Namespaced {
		id.Namespace = ""
	}
	return id
}

// locate finds the places of all manifests.
func (q GatherInput) locate(ctx context.Context, c *cluster.Cluster) []place {
	ours := definitionsOf(q.Payload)
	places := ours.locateAll(ctx, c, q.Payload.Manifests)
	if slices.ContainsFunc(places, func(p place) bool { return p.unserved != nil }) {
		c.Refresh() // what is known may be old
		places = ours.locateAll(ctx, c, q.Payload.Manifests)
	}
	return places
}

func unserved(places []place) []UnservedManifest {
	var found []UnservedManifest
	for _, p := range places {
		if p.unserved != nil {
			found = append(found, *p.unserved)
		}
	}
	return found
}

// withoutNamespace are the manifests that must name a namespace, and don't.
func withoutNamespace(places []place) []*payload.Manifest {
	var found []*payload.Manifest
	for _, p := range places {
		if p.resource.Namespaced && p.manifest.Object().GetNamespace() == "" {
			found = append(found, p.manifest)
		}
	}
	return found
}

// definitions are the kinds that a payload brings along.
type definitions struct {
	kinds    map[schema.GroupKind][]cluster.Resource
	versions map[schema.GroupVersion]bool // of aggregated APIs, whose kinds are not known before
}

// definitionsOf finds the kinds that a payload brings along.
func definitionsOf(p *payload.Payload) definitions {
	ours := definitions{map[schema.GroupKind][]cluster.Resource{}, map[schema.GroupVersion]bool{}}
	for _, m := range p.Manifests {
		switch kind := m.GroupVersionKind().GroupKind(); {
		case m.IsTombstone():
		case kind == kinds.CustomResourceDefinition:
			kind, resources := cluster.DefinedKind(m.Object())
			ours.kinds[kind] = append(ours.kinds[kind], resources...)
		case kind == kinds.APIService:
			ours.versions[schema.GroupVersion{Group: text(m.Object(), "spec", "group"), Version: text(m.Object(), "spec", "version")}] = true
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

// locate finds the place of one manifest. Where the payload defines a kind, its word counts:
// it may take away a version that the cluster serves now.
func (d definitions) locate(ctx context.Context, c *cluster.Cluster, m *payload.Manifest) place {
	kind := m.GroupVersionKind()
	if m.IsTombstone() {
		resource, err := c.FindKind(ctx, kind.GroupKind()) // in any version
		return place{manifest: m, resource: resource, isServed: err == nil}
	}
	resource, err := c.Find(ctx, kind)
	p := place{manifest: m, resource: resource, isServed: err == nil}
	if defined := d.kinds[kind.GroupKind()]; len(defined) > 0 {
		at := slices.IndexFunc(defined, func(r cluster.Resource) bool { return r.Version == kind.Version })
		if at < 0 {
			p.unserved = &UnservedManifest{Manifest: m, Has: defined[0].Version, InOurs: true}
		} else if !p.isServed {
			p.resource = defined[at]
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
