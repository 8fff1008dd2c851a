package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	componentversion "k8s.io/component-base/version"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// These rules are about kinds: which versions of Kubernetes have them, and whether they are
// namespaced.

// newestKubernetes returns the version whose types and checks are built in.
func newestKubernetes() *version.Version {
	return version.MustParseGeneric(componentversion.DefaultKubeBinaryVersion)
}

// scopeOf returns the scope of a manifest's kind.
func (s *subject) scopeOf(m *manifest) kinds.Scope {
	if known := kinds.ScopeOf(m.groupKind()); known != kinds.Unknown {
		return known
	}
	for _, definition := range s.defines[m.groupKind()] {
		if s.shareCluster(definition, m) {
			return kinds.Scope(definition.text("spec", "scope"))
		}
	}
	return kinds.Unknown
}

func checkNoNamespace(s *subject, r *reporter) {
	for _, m := range s.manifests {
		if m.id.Namespace == "" && s.scopeOf(m) == kinds.Namespaced {
			r.field(m, []string{"metadata"},
				"%s is a namespaced kind, and this object has no namespace: write metadata.namespace", m.kind.Kind)
		}
	}
}

func checkNeedlessNamespace(s *subject, r *reporter) {
	for _, m := range s.manifests {
		if m.Object().GetNamespace() != "" && s.scopeOf(m) == kinds.Cluster {
			r.field(m, []string{"metadata", "namespace"}, "%s is a cluster-wide kind: drop metadata.namespace",
				m.kind.Kind)
		}
	}
}

// removedIn returns the first version of Kubernetes that no longer serves a type; nil if all
// serve it.
func removedIn(object runtime.Object) *version.Version {
	removed, hasRemoval := object.(interface{ APILifecycleRemoved() (major, minor int) })
	if !hasRemoval {
		return nil
	}
	major, minor := removed.APILifecycleRemoved()
	return version.MajorMinor(uint(major), uint(minor))
}

// replacement returns a hint at the apiVersion that replaces a removed type; "" if the type names none.
func replacement(object runtime.Object) string {
	replaced, hasReplacement := object.(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	})
	if !hasReplacement || replaced.APILifecycleReplacement().Empty() {
		return ""
	}
	return ": write " + replaced.APILifecycleReplacement().GroupVersion().String()
}

func checkRemovedAPI(s *subject, r *reporter) {
	kubernetes := s.config.kubernetes()
	for _, m := range s.manifests {
		object, err := kinds.Scheme().New(m.kind)
		if err != nil {
			continue
		}
		if since := removedIn(object); since != nil && !kubernetes.LessThan(since) {
			r.field(m, []string{"apiVersion"}, "Kubernetes %s and later don't serve %s of %s%s", since, m.kind.Kind,
				m.kind.GroupVersion(), replacement(object))
		}
	}
}

func checkUnknownAPI(s *subject, r *reporter) {
	newest := newestKubernetes()
	for _, m := range s.manifests {
		switch {
		case kinds.Scheme().Recognizes(m.kind) || m.groupKind() == kinds.APIService:
		case len(s.defines[m.groupKind()]) > 0:
			s.reportUnserved(r, m)
		case kinds.Scheme().IsGroupRegistered(m.kind.Group) && !s.config.IsAhead():
			field, hint := "apiVersion", replacementHint(m.groupKind(), s.config.kubernetes())
			if hint == "" {
				field, hint = "kind", ": is the kind misspelt, or has Kubernetes dropped it?"
			}
			r.field(m, []string{field}, "Kubernetes %d.%d has no %s in %s%s", newest.Major(), newest.Minor(),
				m.kind.Kind, m.kind.GroupVersion(), hint)
		}
	}
}

// reportUnserved reports a version that no CustomResourceDefinition of the payload
// serves. Tombstones count too: an object is deleted through a version.
func (s *subject) reportUnserved(r *reporter, m *manifest) {
	var versions []string
	for _, definition := range s.defines[m.groupKind()] {
		if definition.isTombstone || !s.shareCluster(definition, m) {
			continue
		}
		served := definition.servedVersions()
		if slices.Contains(served, m.kind.Version) {
			return
		}
		versions = append(versions, served...)
	}
	if len(versions) > 0 {
		slices.Sort(versions)
		r.field(m, []string{"apiVersion"}, "the payload's CustomResourceDefinition of %s serves no %s: write one of %s",
			m.kind.Kind, m.kind.Version, strings.Join(slices.Compact(versions), ", "))
	}
}

// isRemoved reports whether a version of Kubernetes no longer serves a type.
func isRemoved(kind schema.GroupVersionKind, kubernetes *version.Version) bool {
	object, err := kinds.Scheme().New(kind)
	if err != nil {
		return true
	}
	since := removedIn(object)
	return since != nil && !kubernetes.LessThan(since)
}

// replacementHint returns a hint at the versions that Kubernetes has of a kind, or at the groups that have
// a kind of that name; "" if there are none.
func replacementHint(kind schema.GroupKind, kubernetes *version.Version) string {
	var versions []string
	for _, version := range kinds.Scheme().VersionsForGroupKind(kind) {
		if !isRemoved(version.WithKind(kind.Kind), kubernetes) {
			versions = append(versions, version.String())
		}
	}
	if len(versions) == 0 {
		for known := range kinds.Scheme().AllKnownTypes() {
			if known.Kind == kind.Kind && known.Version != runtime.APIVersionInternal && !isRemoved(known, kubernetes) {
				versions = append(versions, known.GroupVersion().String())
			}
		}
	}
	if len(versions) == 0 {
		return ""
	}
	slices.Sort(versions)
	return fmt.Sprintf(": it is in %s", strings.Join(versions, ", "))
}

// checkForeignKind reports each kind once, at its first object.
func checkForeignKind(s *subject, r *reporter) {
	seen := map[schema.GroupKind]bool{}
	for _, m := range s.normal {
		kind := m.groupKind()
		if seen[kind] || kinds.Scheme().IsGroupRegistered(kind.Group) || kind == kinds.APIService ||
			len(s.defines[kind]) > 0 {
			continue
		}
		seen[kind] = true
		r.field(m, []string{"kind"},
			"%s of %s is neither Kubernetes' nor defined in the payload, so the cluster must have it already (%s)",
			kind.Kind, kind.Group, printable.Count(len(s.byKind[kind]), "object"))
	}
}

// An UncheckedKind is a kind whose objects are not validated, since its schema is not known.
type UncheckedKind struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Count      int    `json:"count"` // number of objects
}

// uncheckedKinds returns the kinds of the payload that Kubernetes does not have, and that no definition of the payload
// describes on the clusters of their objects. Of a component in a release, only its own objects count.
func (s *subject) uncheckedKinds() []UncheckedKind {
	counts := map[schema.GroupVersionKind]int{}
	for _, m := range s.normal {
		if s.change.concerns(m) && !kinds.Scheme().Recognizes(m.kind) && len(s.schemas.validatorsOf(m)) == 0 {
			counts[m.kind]++
		}
	}
	found := []UncheckedKind{}
	for kind, count := range counts {
		found = append(found, UncheckedKind{kind.GroupVersion().String(), kind.Kind, count})
	}
	slices.SortFunc(found, func(a, b UncheckedKind) int {
		return cmp.Or(cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Kind, b.Kind))
	})
	return found
}
