package rehearse

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

// makeMissing makes what the releases expect from elsewhere: definitions of kinds, Namespaces, and classes of pods and volumes.
// What the new release needs is reported.
func (r *rehearsal) makeMissing(ctx context.Context) error {
	for _, of := range []struct {
		in      lint.Origin
		release *payload.Payload
	}{{lint.InPrevious, r.Old}, {lint.InPayload, r.New}} {
		if of.release == nil {
			continue
		}
		for _, missing := range r.missingKinds(ctx, of.release) {
			if err := r.make(ctx, of.in, missing.by, definitionOf(missing.kind, missing.versions, missing.by.ID().Namespace != ""), "nothing here has the kind "+missing.kind.String()); err != nil {
				return err
			}
		}
		for _, m := range of.release.Manifests {
			if err := r.makeNamespace(ctx, of.in, m); err != nil {
				return err
			}
		}
		if err := r.makeClasses(ctx, of.in, of.release); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a release of the rehearsal has an object.
func (r *rehearsal) has(id kinds.ID) bool {
	return slices.ContainsFunc([]*payload.Payload{r.Old, r.New}, func(release *payload.Payload) bool {
		return release != nil && slices.ContainsFunc(release.Manifests, func(m *payload.Manifest) bool { return m.ID() == id && !m.IsTombstone() })
	})
}

// make makes an object, unless it exists, and reports it at the manifest that needs it.
func (r *rehearsal) make(ctx context.Context, in lint.Origin, by *payload.Manifest, made *unstructured.Unstructured, why string) error {
	found, err := r.cluster.Find(ctx, made.GroupVersionKind())
	if err != nil {
		return err
	}
	id := found.IDOf(made)
	_, err = r.cluster.Create(ctx, found, made, 0)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return err
	}
	r.tell(in, by, id.String()+" was made for the rehearsal: "+why)
	return nil
}

// A missingKind is a kind that nothing here defines, with the first manifest of it.
type missingKind struct {
	kind     schema.GroupKind
	versions []string
	by       *payload.Manifest
}

// missingKinds returns the kinds of a release that are neither the cluster's nor defined by a release. A kind of a group of which
// others are known is probably misspelt: it is not missing.
func (r *rehearsal) missingKinds(ctx context.Context, release *payload.Payload) []missingKind {
	defined := map[string]bool{}
	for _, of := range []*payload.Payload{r.Old, r.New} {
		if of == nil {
			continue
		}
		for _, m := range of.Manifests {
			if m.ID().GroupKind() == kinds.CustomResourceDefinition {
				defined[kinds.DefinedBy(m.Object()).Group] = true
			}
		}
	}
	var found []missingKind
	for _, m := range release.Manifests {
		gvk := m.GroupVersionKind()
		if defined[gvk.Group] || !strings.Contains(gvk.Group, ".") || kinds.Scheme().IsGroupRegistered(gvk.Group) {
			continue
		}
		if _, err := r.cluster.FindKind(ctx, gvk.GroupKind()); err == nil {
			continue
		}
		at := slices.IndexFunc(found, func(k missingKind) bool { return k.kind == gvk.GroupKind() })
		if at < 0 {
			found = append(found, missingKind{gvk.GroupKind(), []string{gvk.Version}, m})
		} else if !slices.Contains(found[at].versions, gvk.Version) {
			found[at].versions = append(found[at].versions, gvk.Version)
		}
	}
	return found
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
			"name": version, "served": true, "storage": i == 0, "subresources": map[string]any{"status": map[string]any{}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": kinds.CustomResourceDefinition.Kind,
		"metadata": map[string]any{"name": name, "annotations": map[string]any{
			"api-approved.kubernetes.io": "unapproved, made for a rehearsal", // which groups below k8s.io need
		}},
		"spec": map[string]any{
			"group": kind.Group, "scope": string(scope), "versions": all,
			"names": map[string]any{"kind": kind.Kind, "listKind": kind.Kind + "List", "plural": plural, "singular": strings.ToLower(kind.Kind)},
		},
	}}
}

// makeNamespace makes the Namespace of a manifest, unless a release has it.
func (r *rehearsal) makeNamespace(ctx context.Context, in lint.Origin, m *payload.Manifest) error {
	name := m.Object().GetNamespace()
	if name == "" || m.IsTombstone() || r.has(kinds.ID{Kind: kinds.Namespace.Kind, Name: name}) {
		return nil
	}
	return r.make(ctx, in, m, clusterWide("v1", kinds.Namespace.Kind, name, nil), "no release of the rehearsal has it")
}

// classFields are the fields, beside the metadata, of the classes that are made.
var classFields = map[schema.GroupKind]map[string]any{
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}: {"value": int64(0)},
	{Group: "node.k8s.io", Kind: "RuntimeClass"}:        {"handler": "rehearsal"},
	{Group: "storage.k8s.io", Kind: "StorageClass"}:     {"provisioner": "rehearsal.runlevel.dev/none"},
	{Group: "networking.k8s.io", Kind: "IngressClass"}:  {"spec": map[string]any{"controller": "rehearsal.runlevel.dev/none"}},
}

// makeClasses makes the classes that a release refers to, and that no release has.
func (r *rehearsal) makeClasses(ctx context.Context, in lint.Origin, release *payload.Payload) error {
	for id, uses := range references.NewGraph(release.Manifests, nil).Uses {
		fields, isClass := classFields[id.GroupKind()]
		if !isClass || references.IsBuiltIn(id) || r.has(id) {
			continue
		}
		if err := r.make(ctx, in, uses[0].By, clusterWide(id.Group+"/v1", id.Kind, id.Name, fields), "no release of the rehearsal has it"); err != nil {
			return err
		}
	}
	return nil
}

// clusterWide returns an object that is in no namespace.
func clusterWide(apiVersion, kind, name string, fields map[string]any) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	for key, value := range fields {
		made.Object[key] = value
	}
	made.SetName(name)
	return made
}
