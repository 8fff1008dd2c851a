package lint

import (
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"

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
			}
		}
		if namespace := s.formerlySelected(m, w); namespace != nil {
			r.field(m, append(slices.Clone(w.Path), "namespaceSelector"), "the webhook %s no longer selects %s, nor "+
				"any other Namespace of the payload: correct %s, or the labels of "+
				"the Namespace", w.Name, namespace.named(), w.Namespaces)
		}
	})
}

// unmatched returns a key of a webhook's rule that matches no request, and the reason; "" if there is none.
func (s *subject) unmatched(m *manifest, rule admissionv1.RuleWithOperations) (key, why string) {
	known := s.resources()
	for _, group := range rule.APIGroups {
		if _, isKnown := known.groups[group]; isKnown {
			continue
		}
		if similar := printable.Nearest(group, sortedKeys(known.groups), 3); similar != "" {
			return "apiGroups", "nothing serves the group " + group + ": did you mean " + similar + "?"
		}
		return "", "" // others may serve the group
	}
	for _, name := range rule.Resources {
		name, _, _ := strings.Cut(name, "/")
		if similar := printable.Nearest(name, known.namesIn(rule.APIGroups), 2); similar != "" && similar != name &&
			name != "*" {
			return "resources", "its groups have no " + name + ": did you mean " + similar + "?"
		}
		for _, group := range rule.APIGroups {
			definition := s.present(kinds.NewID(kinds.CustomResourceDefinition, "", name+"."+group), m)
			if definition == nil {
				continue
			}
			served, scope := definition.servedVersions(), definition.text("spec", "scope")
			isServed := func(version string) bool { return version == "*" || slices.Contains(served, version) }
			if !slices.ContainsFunc(rule.APIVersions, isServed) {
				return "apiVersions", definition.id.String() + " serves " + strings.Join(served, ", ") + ", not " +
					strings.Join(rule.APIVersions, ", ")
			}
			if rule.Scope != nil && *rule.Scope != admissionv1.AllScopes && string(*rule.Scope) != scope {
				return "scope", definition.id.String() + " has the scope " + scope + ": correct it here"
			}
		}
	}
	return "", ""
}

// formerlySelected returns a Namespace that a webhook selected in the previous payload, if it now selects none of the
// payload, and only some Namespaces at all.
func (s *subject) formerlySelected(m *manifest, w admission.Webhook) *manifest {
	old, others := s.previousOf(m), admission.NamespaceLabels("", nil)
	selects := func(w admission.Webhook, namespace *manifest) bool {
		return w.Namespaces.Matches(admission.NamespaceLabels(namespace.id.Name, namespace.Object().GetLabels()))
	}
	if old == nil || w.Namespaces.Matches(others) ||
		slices.ContainsFunc(s.byKind[kinds.Namespace], func(m *manifest) bool { return selects(w, m) }) {
		return nil
	}
	for _, before := range admission.Webhooks(old.Object()) {
		for _, namespace := range s.previous.byKind[kinds.Namespace] {
			if before.Name == w.Name && selects(before, namespace) && !before.Namespaces.Matches(others) {
				return namespace
			}
		}
	}
	return nil
}
