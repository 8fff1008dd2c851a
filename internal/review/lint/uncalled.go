package lint

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserver "k8s.io/apiserver/pkg/admission"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/admission"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// This rule is about webhooks that the API server does not call for what they are meant to check.

func checkWebhookNeverCalled(s *subject, r *reporter) {
	s.eachWebhook(func(m *manifest, w admission.Webhook) {
		for i, rule := range w.Rules {
			if key, problem := s.unmatched(m, rule); problem != "" {
				r.field(m, append(slices.Clone(w.Path), "rules", strconv.Itoa(i), key),
					"the webhook %s is not called for what it names: %s", w.Name, problem)
			} else if missed := s.missedVersion(m, w, rule); missed != "" {
				r.field(m, append(slices.Clone(w.Path), "matchPolicy"), "with matchPolicy Exact, the webhook %s is "+
					"not called for %s, which a definition of the payload serves as well: add the version, or set "+
					"matchPolicy: Equivalent", w.Name, missed)
			}
		}
		if namespace := s.formerlySelected(m, w); namespace != nil {
			r.field(m, append(slices.Clone(w.Path), "namespaceSelector"), "the webhook %s no longer selects %s "+
				"(%s:%d), as it did in the previous payload, nor any other Namespace of the payload: correct %s, or "+
				"the labels of the Namespace", w.Name, namespace.id, namespace.Path, namespace.Line, w.Namespaces)
		}
	})
}

// builtInResources returns the resources of Kubernetes' own groups.
var builtInResources = sync.OnceValue(func() map[string][]string {
	found := map[string][]string{}
	for kind := range kinds.Scheme().AllKnownTypes() {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		found[kind.Group] = append(found[kind.Group], resource.Resource)
	}
	return found
})

// definitionOf returns the definition of a resource in one of some groups; nil if the payload has none.
func (s *subject) definitionOf(groups []string, resource string) *manifest {
	for _, m := range s.byKind[kinds.CustomResourceDefinition] {
		if !m.isTombstone && m.text("spec", "names", "plural") == resource &&
			slices.Contains(groups, m.text("spec", "group")) {
			return m
		}
	}
	return nil
}

// unmatched returns a key of a webhook's rule that matches no request, and the reason; "" if there is none.
func (s *subject) unmatched(m *manifest, rule admissionv1.RuleWithOperations) (key, why string) {
	var resources, groups []string
	for _, definition := range s.byKind[kinds.CustomResourceDefinition] {
		groups = append(groups, definition.text("spec", "group"))
		if slices.Contains(rule.APIGroups, groups[len(groups)-1]) {
			resources = append(resources, definition.text("spec", "names", "plural"))
		}
	}
	for _, group := range rule.APIGroups {
		resources = append(resources, builtInResources()[group]...)
		if len(builtInResources()[group]) > 0 || slices.Contains(groups, group) {
			continue
		}
		if similar := printable.Nearest(group, groups, 3); similar != "" {
			return "apiGroups", "nothing serves the group " + group + ": did you mean " + similar + "?"
		}
		return "", "" // others may serve the group
	}
	for _, name := range rule.Resources {
		name, _, _ = strings.Cut(name, "/")
		definition := s.definitionOf(rule.APIGroups, name)
		switch similar := printable.Nearest(name, resources, 2); {
		case name != "*" && !slices.Contains(resources, name) && similar != "":
			return "resources", "its groups have no " + name + ": did you mean " + similar + "?"
		case definition == nil || !s.shareCluster(definition, m):
		case !slices.ContainsFunc(append(definition.servedVersions(), "*"), func(version string) bool {
			return slices.Contains(rule.APIVersions, version)
		}):
			return "apiVersions", definition.id.String() + " serves " +
				strings.Join(definition.servedVersions(), ", ") + ", not " +
				strings.Join(rule.APIVersions, ", ")
		case rule.Scope != nil && *rule.Scope != admissionv1.AllScopes &&
			string(*rule.Scope) != definition.text("spec", "scope"):
			return "scope", definition.id.String() + " has the scope " + definition.text("spec", "scope") +
				": correct it here"
		}
	}
	return "", ""
}

// missedVersion returns a served version of a definition that no webhook of the configuration matches; "" unless the
// webhook's rule matches other versions, and only exactly those.
func (s *subject) missedVersion(m *manifest, w admission.Webhook, rule admissionv1.RuleWithOperations) string {
	if w.MatchPolicy == nil || *w.MatchPolicy != admissionv1.Exact {
		return ""
	}
	for _, name := range rule.Resources {
		definition := s.definitionOf(rule.APIGroups, name)
		if definition == nil || len(rule.Operations) == 0 {
			continue
		}
		for _, version := range definition.servedVersions() {
			group := schema.GroupVersion{Group: definition.text("spec", "group"), Version: version}
			request := admission.Request{
				Resource: group.WithResource(name), Operation: apiserver.Operation(rule.Operations[0]),
			}
			if !slices.ContainsFunc(admission.Webhooks(m.Object()), func(other admission.Webhook) bool {
				return other.Matches(request)
			}) {
				return group.String() + " " + name
			}
		}
	}
	return ""
}

// formerlySelected returns a Namespace that a webhook selected in the previous payload, if it now selects none of the
// payload, and only some Namespaces at all.
func (s *subject) formerlySelected(m *manifest, w admission.Webhook) *manifest {
	others := admission.NamespaceLabels("", nil)
	if s.previous == nil || w.Namespaces.Matches(others) ||
		slices.ContainsFunc(s.byKind[kinds.Namespace], func(namespace *manifest) bool {
			set, _ := s.labelsOf(namespace.id.Name, w.Namespaces)
			return w.Namespaces.Matches(set)
		}) {
		return nil
	}
	named, _ := w.Namespaces.RequiresExactMatch(corev1.LabelMetadataName)
	for _, old := range s.previous.byID[m.id] {
		for _, before := range admission.Webhooks(old.Object()) {
			for _, namespace := range s.previous.byKind[kinds.Namespace] {
				name := namespace.id.Name
				if before.Name == w.Name &&
					before.Namespaces.Matches(admission.NamespaceLabels(name, namespace.Object().GetLabels())) &&
					(!before.Namespaces.Matches(others) || printable.Nearest(named, []string{name}, 3) != "") {
					return namespace
				}
			}
		}
	}
	return nil
}
