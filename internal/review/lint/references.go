package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// These rules are about references to objects and keys that the payload does not have.

// referenceRules are about the references of manifests.
func referenceRules() []Rule {
	return []Rule{
		{"missing-reference", Error, nothing, checkMissingReference},
		{"foreign-reference", Info, nothing, checkForeignReference},
		{"missing-key", Error, nothing, checkMissingKey},
		{"declared-reference", Error, nothing, checkDeclaredReference},
		{"unread-change", Warning, needsPrevious, checkUnreadChange},
	}
}

// A missingReference is a reference to an object that the payload does not have.
type missingReference struct {
	by *manifest
	references.Reference
	creator string // who may create the object, as the end of a sentence; "" if none is known
}

// findMissingReferences returns the references to objects that are neither in the payload nor in every cluster. Objects
// of the previous payload are left out: other rules report dropped, renamed and deleted objects.
func (s *subject) findMissingReferences() []missingReference {
	creators := s.creators()
	var found []missingReference
	for _, m := range s.normal {
		for _, reference := range m.references {
			id := reference.To
			isKnown := len(s.byID[id]) > 0 || s.excluded[id] != nil || references.IsBuiltIn(id) || s.isKnownObject(id)
			if isKnown || s.isInPrevious(id) ||
				id.Namespace == "" && kinds.ScopeOf(id.GroupKind()) == kinds.Namespaced {
				continue
			}
			creator := cmp.Or(creators.creatorOf(id), s.effectOfMissing(m, reference))
			isGuess := creator == creators.roleAllowing(id, "create")
			switch {
			case isGuess && (s.twinOf(m, id) != nil || s.isTrusted(m, reference)):
				creator = ""
			case m.kind.Kind == "Ingress" && s.graph.Creators[id] == m:
				creator = "cert-manager creates it, as an annotation requests"
			case s.isCreatedByController(id):
				continue
			}
			found = append(found, missingReference{m, reference, creator})
		}
	}
	return found
}

// twinOf returns the Secret with the name of a ConfigMap to which a manifest refers, or the other way round; nil if the
// payload has none, or the manifest refers to it as well.
func (s *subject) twinOf(m *manifest, id kinds.ID) *manifest {
	kind := map[schema.GroupKind]string{kinds.ConfigMap: "Secret", kinds.Secret: "ConfigMap"}[id.GroupKind()]
	twin := s.present(kinds.NewID(schema.GroupKind{Kind: kind}, id.Namespace, id.Name), m)
	if twin == nil || slices.ContainsFunc(m.references, func(r references.Reference) bool { return r.To == twin.id }) {
		return nil
	}
	return twin
}

// isTrusted reports whether a manifest has the authority of the certificate that a Service to which it refers serves. A
// program that creates such a Service would write the authority, too.
func (s *subject) isTrusted(m *manifest, reference references.Reference) bool {
	i := slices.Index(reference.Path, "service")
	if i < 0 || s.isInjected(m) {
		return false
	}
	bundle, _ := fieldAt(m.Object().Object, append(slices.Clone(reference.Path[:i]), "caBundle")).(string)
	return bundle != ""
}

// isCreatedByController reports whether a controller creates an object for a manifest.
func (s *subject) isCreatedByController(id kinds.ID) bool {
	_, isCreated := s.graph.Creators[id]
	return isCreated
}

// isKnownObject reports whether others create an object, according to the configuration.
func (s *subject) isKnownObject(id kinds.ID) bool {
	return slices.Contains(s.config.Known.Objects, id.String())
}

// effectOfMissing returns the limitation of an object of the payload while a referenced object does not exist, as the
// end of a sentence. It returns "" if the object does not work, or the name is probably a misspelling.
func (s *subject) effectOfMissing(m *manifest, reference references.Reference) string {
	id := reference.To
	var names []string
	for _, other := range s.byKind[id.GroupKind()] {
		if other.id.Namespace == id.Namespace {
			names = append(names, other.id.Name)
		}
	}
	switch {
	case printable.Nearest(id.Name, names, 3) != "":
		return ""
	case m.isBinding() && reference.Consequence == references.Harmless && !s.hasUnbound(id.Namespace):
		return "the binding has no effect on it until others make it"
	case m.kind.Kind == "StatefulSet" && id.GroupKind() == kinds.Service:
		return "the pods have no DNS names of their own until others make it"
	default:
		return ""
	}
}

// hasUnbound reports whether the payload has an account in a namespace to which no binding gives rights.
func (s *subject) hasUnbound(namespace string) bool {
	bound := sets.New[kinds.ID]()
	for _, m := range s.normal {
		for _, reference := range m.references {
			if m.isBinding() {
				bound.Insert(reference.To)
			}
		}
	}
	return slices.ContainsFunc(s.byKind[kinds.ServiceAccount], func(m *manifest) bool {
		return m.id.Namespace == namespace && !m.isTombstone && !bound.Has(m.id)
	})
}

func (s *subject) isInPrevious(id kinds.ID) bool {
	return s.previous != nil && len(s.previous.byID[id]) > 0
}

func checkMissingReference(s *subject, r *reporter) {
	for _, gap := range s.missingReferences() {
		if gap.creator != "" {
			continue
		}
		fix := "correct the name, add it, or list it as known in the configuration"
		if twin := s.twinOf(gap.by, gap.To); twin != nil {
			fix = fmt.Sprintf("refer to %s (%s), or add it", twin.id, twin.place())
		}
		r.field(gap.by, gap.Path, "%s refers to %s, which nothing in the payload creates: %s", gap.Field(), gap.To, fix)
	}
}

func checkForeignReference(s *subject, r *reporter) {
	for _, gap := range s.missingReferences() {
		if gap.creator != "" {
			r.field(gap.by, gap.Path, "%s refers to %s, which is not in the payload: %s", gap.Field(), gap.To,
				gap.creator)
		}
	}
}

// checkMissingKey looks for references to keys that a ConfigMap or a Secret of the payload does not have. If a program
// of the payload may write the object, the program may add the key, unless the previous payload had it.
func checkMissingKey(s *subject, r *reporter) {
	creators := s.creators()
	for _, m := range s.normal {
		for _, reference := range m.references {
			for _, key := range reference.Keys {
				manifests := slices.DeleteFunc(slices.Clone(s.byID[reference.To]), func(other *manifest) bool {
					return other.isTombstone || !s.shareCluster(m, other)
				})
				hasKey := func(other *manifest) bool { return other.hasKey(key) }
				hadKey := s.previous != nil && slices.ContainsFunc(s.previous.byID[reference.To], hasKey)
				if len(manifests) > 0 && !slices.ContainsFunc(manifests, hasKey) &&
					(hadKey || creators.roleAllowing(reference.To, "update", "patch") == "") {
					r.field(m, reference.Path, "%s refers to the key %s of %s (%s:%d), which does not have it",
						reference.Field(), key, reference.To, manifests[0].Path, manifests[0].Line)
				}
			}
		}
	}
}

// hasKey reports whether a ConfigMap or a Secret has a key.
func (m *manifest) hasKey(key string) bool {
	for _, field := range dataFields {
		values, _ := m.get(field).(map[string]any)
		if _, hasKey := values[key]; hasKey {
			return true
		}
	}
	return false
}

// A creatorFinder finds the programs that may create objects that are not in the payload.
type creatorFinder struct {
	*subject
	roles []*manifest
}

func (s *subject) newCreatorFinder() creatorFinder {
	finder := creatorFinder{subject: s}
	for _, m := range s.normal {
		if m.isRole() || m.isBinding() {
			finder.roles = append(finder.roles, m)
		}
	}
	return finder
}

// creatorOf returns who may create an object, as the end of a sentence: others, if the payload has neither the
// namespace nor the cluster-scoped kind, or a program of the payload that has the right.
func (f creatorFinder) creatorOf(id kinds.ID) string {
	namespace := kinds.NewID(kinds.Namespace, "", id.Namespace)
	switch {
	case id.Namespace != "" &&
		!slices.ContainsFunc(f.byID[namespace], func(m *manifest) bool { return !m.isTombstone }):
		return "others make it in the namespace " + id.Namespace
	case id.Namespace == "" && len(f.byKind[id.GroupKind()]) == 0:
		return fmt.Sprintf("others make each %s of the cluster", id.Kind)
	default:
		return cmp.Or(f.roleAllowing(id, "create"), f.secretCreator(id))
	}
}

// copyAnnotations are the prefixes of annotations for which a controller copies a Secret or a ConfigMap into other
// namespaces.
var copyAnnotations = []string{"replicator.v1.mittwald.de/replicate-to",
	"reflector.v1.k8s.emberstack.com/reflection-auto-",
	"kubed.appscode.com/sync"}

// secretCreator returns the controller that may create a Secret without a right from the payload: a controller that
// copies a Secret of the same name, or that creates Secrets for a custom resource. The Prometheus operator creates
// Secrets only for itself.
func (f creatorFinder) secretCreator(id kinds.ID) string {
	if id.GroupKind() != kinds.Secret {
		return ""
	}
	for _, m := range slices.Concat(f.byKind[kinds.Secret], f.inside[id.Namespace]) {
		isCopied := m.id.Name == id.Name && slices.ContainsFunc(sortedKeys(m.annotations), func(key string) bool {
			return slices.ContainsFunc(copyAnnotations, func(prefix string) bool {
				return strings.HasPrefix(key, prefix)
			})
		})
		isForeign := !m.isTombstone && strings.Contains(m.kind.Group, ".") &&
			!kinds.Scheme().IsGroupRegistered(m.kind.Group)
		switch {
		case isCopied:
			return fmt.Sprintf("an annotation has a controller copy %s (%s:%d)", m.id, m.Path, m.Line)
		case isForeign && len(f.defines[m.groupKind()]) == 0 && m.kind.Group != "monitoring.coreos.com":
			return fmt.Sprintf("the controller of %s (%s:%d) may make it", m.id, m.Path, m.Line)
		}
	}
	return ""
}

// roleAllowing returns the first role that gives a right to write an object; "" if there is none.
func (f creatorFinder) roleAllowing(id kinds.ID, verbs ...string) string {
	for _, m := range f.roles {
		if m.id.Namespace != "" && m.id.Namespace != id.Namespace {
			continue
		}
		if m.isBinding() && slices.Contains([]string{"cluster-admin", "admin", "edit"}, m.text("roleRef", "name")) ||
			m.allows(id.GroupKind(), false, verbs...) {
			return fmt.Sprintf("%s (%s:%d) lets a program create it", m.id, m.Path, m.Line)
		}
	}
	return ""
}

// allows reports whether a role gives one of the verbs for all objects of a kind; with some, for some objects.
func (m *manifest) allows(kind schema.GroupKind, some bool, verbs ...string) bool {
	resource, _ := meta.UnsafeGuessKindToResource(kind.WithVersion("v1"))
	rules, _ := m.get("rules").([]any)
	return slices.ContainsFunc(rules, func(rule any) bool {
		fields, _ := rule.(map[string]any)
		has := func(field string, wanted ...string) bool {
			values, _ := fields[field].([]any)
			return slices.ContainsFunc(values, func(value any) bool {
				text, _ := value.(string)
				return text == "*" || slices.Contains(wanted, text)
			})
		}
		return has("apiGroups", kind.Group) && has("resources", resource.Resource) && has("verbs", verbs...) &&
			(some || fields["resourceNames"] == nil)
	})
}
