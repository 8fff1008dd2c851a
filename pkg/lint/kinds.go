package lint

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	componentversion "k8s.io/component-base/version"
)

// These rules are about kinds: which Kubernetes has them, and whether they are
// namespaced.

// builtin are Kubernetes' own types, which say themselves when they were removed.
var builtin = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensionsv1.AddToScheme, apiextensionsv1beta1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return scheme
})

// newestKubernetes is the version whose types and checks are built in.
func newestKubernetes() *version.Version {
	return version.MustParseGeneric(componentversion.DefaultKubeBinaryVersion)
}

// A scope says whether objects of a kind are in a namespace.
type scope string

const (
	namespaced  scope = "Namespaced"
	clusterWide scope = "Cluster"
)

// builtinScopes are those of Kubernetes' own kinds. Its client says them: what makes a
// client of a kind takes a namespace, or does not.
var builtinScopes = sync.OnceValue(func() map[schema.GroupKind]scope {
	found := map[schema.GroupKind]scope{
		definitionKind: clusterWide, apiServiceKind: clusterWide, // which have clients of their own
	}
	clients := reflect.TypeFor[kubernetes.Interface]()
	for i := range clients.NumMethod() {
		group := clients.Method(i).Type
		if group.NumOut() != 1 || group.Out(0).Kind() != reflect.Interface {
			continue
		}
		for j := range group.Out(0).NumMethod() {
			getter := group.Out(0).Method(j).Type
			for _, kind := range kindsOfClient(getter) {
				found[kind] = clusterWide
				if getter.NumIn() == 1 {
					found[kind] = namespaced
				}
			}
		}
	}
	return found
})

// kindsOfClient are the kinds that the client of one kind creates, as in
// Create(ctx, *v1.Pod, options).
func kindsOfClient(getter reflect.Type) []schema.GroupKind {
	if getter.NumOut() != 1 || getter.Out(0).Kind() != reflect.Interface {
		return nil
	}
	create, ok := getter.Out(0).MethodByName("Create")
	if !ok || create.Type.NumIn() < 2 || create.Type.In(1).Kind() != reflect.Pointer {
		return nil
	}
	object, isObject := reflect.New(create.Type.In(1).Elem()).Interface().(runtime.Object)
	if !isObject {
		return nil
	}
	kinds, _, err := builtin().ObjectKinds(object)
	if err != nil {
		return nil
	}
	var all []schema.GroupKind
	for _, kind := range kinds {
		all = append(all, kind.GroupKind())
	}
	return all
}

// scopeOf is the scope of a manifest's kind; "" if nobody knows.
func (s *subject) scopeOf(m *manifest) scope {
	if known := builtinScopes()[m.groupKind()]; known != "" {
		return known
	}
	for _, definition := range s.defines[m.groupKind()] {
		if s.areTogether(definition, m) {
			return scope(definition.text("spec", "scope"))
		}
	}
	return ""
}

func checkNoNamespace(s *subject, r *reporter) error {
	for _, m := range s.manifests {
		if m.id.Namespace == "" && s.scopeOf(m) == namespaced {
			r.field(m, []string{"metadata"}, "a %s is in a namespace, and this one says none: write metadata.namespace", m.kind.Kind)
		}
	}
	return nil
}

func checkNeedlessNamespace(s *subject, r *reporter) error {
	for _, m := range s.manifests {
		if m.id.Namespace != "" && s.scopeOf(m) == clusterWide {
			r.field(m, []string{"metadata", "namespace"}, "a %s is in no namespace: drop metadata.namespace", m.kind.Kind)
		}
	}
	return nil
}

// A removedType is one that says when Kubernetes has removed it, and what is there
// instead.
type removedType interface{ APILifecycleRemoved() (major, minor int) }
type replacedType interface {
	APILifecycleReplacement() schema.GroupVersionKind
}

func checkRemovedAPI(s *subject, r *reporter) error {
	target := s.config.kubernetes()
	for _, m := range s.manifests {
		object, err := builtin().New(m.kind)
		if err != nil {
			continue
		}
		removed, is := object.(removedType)
		if !is {
			continue
		}
		major, minor := removed.APILifecycleRemoved()
		if cmp.Or(cmp.Compare(uint(major), target.Major()), cmp.Compare(uint(minor), target.Minor())) > 0 {
			continue
		}
		instead := ""
		if replaced, is := object.(replacedType); is && !replaced.APILifecycleReplacement().Empty() {
			instead = ": write " + replaced.APILifecycleReplacement().GroupVersion().String()
		}
		r.field(m, []string{"apiVersion"}, "Kubernetes %d.%d and later don't serve %s of %s%s", major, minor, m.kind.Kind, m.kind.GroupVersion(), instead)
	}
	return nil
}

func checkUnknownAPI(s *subject, r *reporter) error {
	newest := newestKubernetes()
	for _, m := range s.manifests {
		switch {
		case builtin().Recognizes(m.kind) || m.groupKind() == apiServiceKind:
		case len(s.defines[m.groupKind()]) > 0:
			s.reportUnserved(r, m)
		case builtin().IsGroupRegistered(m.kind.Group) && !newest.LessThan(s.config.kubernetes()):
			field, what := "apiVersion", instead(m.groupKind(), s.config.kubernetes())
			if what == "" {
				field, what = "kind", ": is the kind misspelt, or has Kubernetes dropped it?"
			}
			r.field(m, []string{field}, "Kubernetes %d.%d has no %s in %s%s", newest.Major(), newest.Minor(), m.kind.Kind, m.kind.GroupVersion(), what)
		}
	}
	return nil
}

// reportUnserved reports a version that no CustomResourceDefinition of the payload
// serves. Tombstones count too: an object is deleted by way of a version.
func (s *subject) reportUnserved(r *reporter, m *manifest) {
	var versions []string
	for _, definition := range s.defines[m.groupKind()] {
		if definition.isTombstone || !s.areTogether(definition, m) {
			continue
		}
		served := servedVersions(definition)
		if slices.Contains(served, m.kind.Version) {
			return
		}
		versions = append(versions, served...)
	}
	if len(versions) > 0 {
		slices.Sort(versions)
		r.field(m, []string{"apiVersion"}, "the payload's CustomResourceDefinition of %s serves no %s: write one of %s", m.kind.Kind, m.kind.Version, strings.Join(slices.Compact(versions), ", "))
	}
}

// isRemoved says whether a version of Kubernetes no longer serves a type.
func isRemoved(kind schema.GroupVersionKind, target *version.Version) bool {
	object, err := builtin().New(kind)
	if err != nil {
		return true
	}
	removed, is := object.(removedType)
	if !is {
		return false
	}
	major, minor := removed.APILifecycleRemoved()
	return !target.LessThan(version.MajorMinor(uint(major), uint(minor)))
}

// instead names the versions that Kubernetes has of a kind, or the groups that have
// one of that name.
func instead(kind schema.GroupKind, target *version.Version) string {
	var versions []string
	for _, version := range builtin().VersionsForGroupKind(kind) {
		if !isRemoved(version.WithKind(kind.Kind), target) {
			versions = append(versions, version.String())
		}
	}
	if len(versions) == 0 {
		for known := range builtin().AllKnownTypes() {
			if known.Kind == kind.Kind && known.Version != runtime.APIVersionInternal && !isRemoved(known, target) {
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

// checkForeignKind reports each kind once: that of an object is no news the second time.
func checkForeignKind(s *subject, r *reporter) error {
	seen := map[schema.GroupKind]bool{}
	for _, m := range s.normal {
		kind := m.groupKind()
		if seen[kind] || builtin().IsGroupRegistered(kind.Group) || kind == apiServiceKind || len(s.defines[kind]) > 0 {
			continue
		}
		seen[kind] = true
		r.field(m, []string{"kind"}, "%s of %s is defined elsewhere, so nothing is known of its fields here (%s)", kind.Kind, kind.Group, counted(len(s.byKind[kind]), "object"))
	}
	return nil
}

// counted is a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
