package rehearse

import (
	"context"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A supplier creates the objects that releases need and do not have. It reports the objects that the new release needs.
type supplier struct {
	cluster  *cluster.Cluster
	old      *payload.Payload // nil if there is none
	new      *payload.Payload
	findings *findings
}

// supply creates definitions of kinds, Namespaces, and classes of pods and volumes, and labels the nodes.
func (s *supplier) supply(ctx context.Context) error {
	if err := s.labelNodes(ctx); err != nil {
		return err
	}
	return s.provideAll(ctx)
}

// provideAll creates the objects that the releases need and do not have.
func (s *supplier) provideAll(ctx context.Context) error {
	for _, needs := range []struct {
		in      lint.Origin
		release *payload.Payload
	}{{lint.InPrevious, s.old}, {lint.InPayload, s.new}} {
		if needs.release == nil {
			continue
		}
		for _, missing := range s.missingKinds(ctx, needs.release) {
			if err := s.provide(ctx, definitionOf(missing.kind, missing.versions, missing.by.ID().Namespace != ""),
				needer{needs.in, missing.by, []string{"kind"}}); err != nil {
				return err
			}
		}
		for _, m := range needs.release.Manifests {
			if err := s.provideNamespace(ctx, needs.in, m); err != nil {
				return err
			}
		}
		if err := s.provideClasses(ctx, needs.in, needs.release); err != nil {
			return err
		}
	}
	return nil
}

// hasObject reports whether a release of the rehearsal has an object.
func (s *supplier) hasObject(id kinds.ID) bool {
	return slices.ContainsFunc(slices.Concat(manifestsOf(s.old), manifestsOf(s.new)), func(m *payload.Manifest) bool {
		return m.ID() == id && !m.IsTombstone()
	})
}

// provide creates an object if it does not exist, and reports it at the field of the manifest that needs it.
func (s *supplier) provide(ctx context.Context, object *unstructured.Unstructured, by needer) error {
	wasCreated, err := s.create(ctx, object)
	if !wasCreated || by.origin == lint.InPrevious {
		return err
	}
	gvk := object.GroupVersionKind()
	id, hint := kinds.NewID(gvk.GroupKind(), "", object.GetName()), ""
	if near := printable.Nearest(id.Name, s.names(id.GroupKind()), maxTypos); near != "" {
		hint = ": did you mean " + near + "?"
	}
	observation := newObservation(lint.RehearsalMade,
		"%s was created for the rehearsal, and a cluster that does not have "+
			"it refuses what needs it: no release of the rehearsal has it%s", id, hint)
	observation.Field, observation.Made = by.field, &id
	s.findings.addForManifest(by.manifest, observation)
	return nil
}

// A needer is the field of a manifest that needs an object.
type needer struct {
	origin   lint.Origin
	manifest *payload.Manifest
	field    []string
}

// names returns the names of the objects of a kind in the releases.
func (s *supplier) names(kind schema.GroupKind) (names []string) {
	for _, m := range slices.Concat(manifestsOf(s.old), manifestsOf(s.new)) {
		if m.ID().GroupKind() == kind {
			names = append(names, m.ID().Name)
		}
	}
	return names
}

// create creates an object. It returns false if the object exists.
func (s *supplier) create(ctx context.Context, object *unstructured.Unstructured) (wasCreated bool, err error) {
	resource, err := s.cluster.Find(ctx, object.GroupVersionKind())
	if err != nil {
		return false, err
	}
	_, err = s.cluster.Create(ctx, resource, object, 0)
	if apierrors.IsAlreadyExists(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return false, nil // the API server refuses the object that needs it, too, which is reported
	}
	return err == nil, err
}

// maxTypos limits the different letters between the name of a kind and its misspelling.
const maxTypos = 3

// A missingKind is a kind that neither the cluster nor a release defines, with the first manifest of the kind.
type missingKind struct {
	kind     schema.GroupKind
	versions []string
	by       *payload.Manifest
}

// missingKinds returns the kinds of a release that neither the cluster nor a release defines. It leaves out a kind
// whose name or group resembles a defined one, because it is probably misspelt.
func (s *supplier) missingKinds(ctx context.Context, release *payload.Payload) []missingKind {
	defined := map[string][]string{} // defined kinds by group
	for _, m := range slices.Concat(manifestsOf(s.old), manifestsOf(s.new)) {
		if m.ID().GroupKind() == kinds.CustomResourceDefinition {
			kind := kinds.DefinedBy(m.Object())
			defined[kind.Group] = append(defined[kind.Group], kind.Kind)
		}
	}
	var found []missingKind
	for _, m := range release.Manifests {
		gvk := m.GroupVersionKind()
		near := defined[printable.Nearest(gvk.Group, slices.Collect(maps.Keys(defined)), maxTypos)]
		isKnown := printable.Nearest(gvk.Kind, defined[gvk.Group], maxTypos) != "" || slices.Contains(near, gvk.Kind)
		if isKnown || m.IsTombstone() || !strings.Contains(gvk.Group, ".") ||
			kinds.Scheme().IsGroupRegistered(gvk.Group) {
			continue
		}
		if _, err := s.cluster.FindKind(ctx, gvk.GroupKind()); err == nil {
			continue
		}
		if !slices.ContainsFunc(found, func(k missingKind) bool { return k.kind == gvk.GroupKind() }) {
			found = append(found, missingKind{gvk.GroupKind(), s.versionsOf(gvk.GroupKind()), m})
		}
	}
	return found
}

// versionsOf returns the versions in which the releases have objects of a kind.
func (s *supplier) versionsOf(kind schema.GroupKind) (versions []string) {
	for _, m := range slices.Concat(manifestsOf(s.old), manifestsOf(s.new)) {
		if gvk := m.GroupVersionKind(); gvk.GroupKind() == kind && !slices.Contains(versions, gvk.Version) {
			versions = append(versions, gvk.Version)
		}
	}
	return versions
}

// definitionOf returns a definition that accepts every object of a kind.
func definitionOf(kind schema.GroupKind, versions []string, isNamespaced bool) *unstructured.Unstructured {
	name := kinds.DefinitionName(kind)
	plural, _, _ := strings.Cut(name, ".")
	scope := kinds.Cluster
	if isNamespaced {
		scope = kinds.Namespaced
	}
	var all []any
	for i, version := range versions {
		all = append(all, map[string]any{
			"name": version, "served": true, "storage": i == 0,
			"subresources": map[string]any{"status": map[string]any{}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type":                                 "object",
				"x-kubernetes-preserve-unknown-fields": true,
			}},
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": kinds.CustomResourceDefinition.Kind,
		"metadata": map[string]any{"name": name, "annotations": map[string]any{
			"api-approved.kubernetes.io": "unapproved, made for a rehearsal", // required for groups below k8s.io
		}},
		"spec": map[string]any{
			"group": kind.Group, "scope": string(scope), "versions": all,
			"names": map[string]any{
				"kind":     kind.Kind,
				"listKind": kind.Kind + "List",
				"plural":   plural,
				"singular": strings.ToLower(kind.Kind),
			},
		},
	}}
}

// provideNamespace creates the Namespace of a manifest, unless a release has it.
func (s *supplier) provideNamespace(ctx context.Context, origin lint.Origin, m *payload.Manifest) error {
	name := m.Object().GetNamespace()
	if name == "" || m.IsTombstone() || s.hasObject(kinds.NewID(kinds.Namespace, "", name)) {
		return nil
	}
	return s.provide(ctx, newClusterObject("v1", kinds.Namespace.Kind, name, nil),
		needer{origin, m, []string{"metadata", "namespace"}})
}

// classFields are the fields, beside the metadata, of the classes that are created.
var classFields = map[schema.GroupKind]map[string]any{
	kinds.PriorityClass: {"value": int64(0)},
	kinds.RuntimeClass:  {"handler": "rehearsal"},
	kinds.StorageClass:  {"provisioner": "rehearsal.runlevel.dev/none"},
	kinds.IngressClass:  {"spec": map[string]any{"controller": "rehearsal.runlevel.dev/none"}},
}

// provideClasses creates the classes that a release refers to and no release has.
func (s *supplier) provideClasses(ctx context.Context, origin lint.Origin, release *payload.Payload) error {
	for id, uses := range references.NewGraph(release.Manifests, nil).Uses {
		fields, isClass := classFields[id.GroupKind()]
		if !isClass || references.IsBuiltIn(id) || s.hasObject(id) {
			continue
		}
		if err := s.provide(ctx, newClusterObject(id.Group+"/v1", id.Kind, id.Name, fields),
			needer{origin, uses[0].By, uses[0].Path}); err != nil {
			return err
		}
	}
	return nil
}

// newClusterObject returns a cluster-scoped object.
func newClusterObject(apiVersion, kind, name string, fields map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	for key, value := range fields {
		object.Object[key] = value
	}
	object.SetName(name)
	return object
}
