package lint

import (
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// These checks are about the names of resources and verbs in the rules of roles.

// resourceNames has the resources of Kubernetes and of the payload's definitions.
type resourceNames struct {
	scopes  map[schema.GroupResource]kinds.Scope
	similar map[string][]schema.GroupResource // by the plural and by the kind in lower case
	groups  map[string]bool                   // known API groups, and whether all of their resources are known
}

func (s *subject) newResourceNames() *resourceNames {
	n := &resourceNames{
		scopes: map[schema.GroupResource]kinds.Scope{}, similar: map[string][]schema.GroupResource{},
		groups: map[string]bool{"extensions": true},
	}
	for kind, scope := range kinds.BuiltIn() {
		if kind.Group != "extensions" { // no longer served
			n.add(schema.ParseGroupResource(kinds.DefinitionName(kind)), kind.Kind, scope)
			n.groups[kind.Group] = true
		}
	}
	for _, m := range s.byKind[kinds.CustomResourceDefinition] {
		resource := schema.GroupResource{Group: m.text("spec", "group"), Resource: m.text("spec", "names", "plural")}
		if !m.isTombstone {
			n.add(resource, m.text("spec", "names", "kind"), kinds.Scope(m.text("spec", "scope")))
			if _, isKnown := n.groups[resource.Group]; !isKnown {
				n.groups[resource.Group] = false
			}
		}
	}
	for _, resources := range n.similar {
		slices.SortFunc(resources, func(a, b schema.GroupResource) int {
			return strings.Compare(a.String(), b.String())
		})
	}
	return n
}

func (n *resourceNames) add(resource schema.GroupResource, kind string, scope kinds.Scope) {
	n.scopes[resource] = scope
	for _, name := range []string{resource.Resource, strings.ToLower(kind)} {
		n.similar[name] = append(n.similar[name], resource)
	}
}

// namesIn returns the names of the resources of some API groups.
func (n *resourceNames) namesIn(groups []string) (names []string) {
	for resource := range n.scopes {
		if slices.Contains(groups, resource.Group) {
			names = append(names, resource.Resource)
		}
	}
	slices.Sort(names)
	return names
}

// meant returns the resource that a rule probably means by a name that none of its API groups has; none if a group may
// have it.
func (n *resourceNames) meant(groups []string, resource string) (meant schema.GroupResource) {
	name, subresource, _ := strings.Cut(resource, "/")
	if !slices.Contains([]string{"", "status", "scale", "finalizers"}, subresource) {
		return meant // others may check invented ones
	}
	areAll := len(groups) > 0
	for _, group := range groups {
		isAll, isKnown := n.groups[group]
		isOthers := group == rbacv1.APIGroupAll || strings.Contains(group, ".") && !strings.Contains(group, "/")
		if isOthers && !isKnown || n.scopes[schema.GroupResource{Group: group, Resource: name}] != "" {
			return meant
		}
		areAll = areAll && (isAll || !isKnown)
	}
	for _, found := range n.similar[strings.ToLower(name)] {
		if slices.Contains(groups, found.Group) || areAll && meant.Empty() {
			meant = found
		}
	}
	if !meant.Empty() && subresource != "" {
		meant.Resource += "/" + subresource
	}
	return meant
}

// corrected returns a rule with what its misspelt verbs and resources probably mean.
func (n *resourceNames) corrected(rule rbacv1.PolicyRule) rbacv1.PolicyRule {
	fixed := *rule.DeepCopy()
	for _, verb := range rule.Verbs {
		if meant := n.meantVerb(rule.APIGroups, verb); meant != "" {
			fixed.Verbs = append(fixed.Verbs, meant)
		}
	}
	for _, resource := range rule.Resources {
		if meant := n.meant(rule.APIGroups, resource); !meant.Empty() {
			fixed.APIGroups = append(fixed.APIGroups, meant.Group)
			fixed.Resources = append(fixed.Resources, meant.Resource)
		}
	}
	return fixed
}

// verbs are those that requests have, or that authorizers check.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "use", "bind",
	"escalate", "impersonate", "approve", "sign", "attest", "proxy", "connect", rbacv1.VerbAll}

// meantVerb returns the verb that a rule probably means by one that no request has; "" if it may be checked by others.
func (n *resourceNames) meantVerb(groups []string, verb string) string {
	near := printable.Nearest(verb, verbs, 2+len(verb)/6)
	isOthers := slices.ContainsFunc(groups, func(group string) bool {
		_, isKnown := n.groups[group]
		return !isKnown
	})
	if slices.Contains(verbs, verb) || isOthers && !strings.EqualFold(verb, near) {
		return ""
	}
	return near
}

// hasEffect reports whether a rule with one verb and one resource gives a right in a namespace, or "" for the cluster.
func (n *resourceNames) hasEffect(rule rbacv1.PolicyRule, namespace string) bool {
	if len(rule.NonResourceURLs) > 0 {
		return namespace == ""
	}
	name, subresource, _ := strings.Cut(rule.Resources[0], "/")
	resource := schema.GroupResource{Group: rule.APIGroups[0], Resource: name}
	hasNoName := rule.Verbs[0] == "create" && subresource == "" && len(rule.ResourceNames) > 0
	isOutside := namespace != "" && n.isOutside(resource, rule.Verbs)
	return n.meant(rule.APIGroups, rule.Resources[0]).Empty() && n.meantVerb(rule.APIGroups, rule.Verbs[0]) == "" &&
		!hasNoName && !isOutside
}

// isOutside reports whether a role of a namespace gives no right for a resource, since it is in no namespace. A
// Namespace is in itself, and a check of the verb use has the namespace of a pod.
func (n *resourceNames) isOutside(resource schema.GroupResource, verbs []string) bool {
	return n.scopes[resource] == kinds.Cluster && resource.Resource != "namespaces" && !slices.Contains(verbs, "use")
}

// checkRightsWithoutEffect looks for parts of rules that allow no request.
func checkRightsWithoutEffect(s *subject, r *reporter) {
	for _, m := range s.normal {
		rules := grantsIn(m)
		if len(rules) > 0 && m.get("aggregationRule") != nil {
			r.field(m, []string{"rules"}, "a controller replaces these rules by those of the roles that "+
				"aggregationRule selects: move them to a ClusterRole with such labels")
			continue
		}
		for i, rule := range rules {
			s.reportRule(m, rules, rule.PolicyRule, []string{"rules", strconv.Itoa(i)}, r)
		}
	}
}

// reportRule reports parts of a rule without effect.
func (s *subject) reportRule(m *manifest, rules []grant, rule rbacv1.PolicyRule, path []string, r *reporter) {
	for i, verb := range rule.Verbs {
		if meant := s.resources().meantVerb(rule.APIGroups, verb); meant != "" && len(rule.Resources) > 0 {
			field := append(slices.Clip(path), "verbs", strconv.Itoa(i))
			r.field(m, field, "no request has the verb %s: write %s", verb, meant)
		}
	}
	for i, resource := range rule.Resources {
		field := append(slices.Clip(path), "resources", strconv.Itoa(i))
		meant := s.resources().meant(rule.APIGroups, resource)
		isNamed := slices.ContainsFunc(rules, func(g grant) bool {
			return slices.Contains(g.APIGroups, meant.Group) && slices.Contains(g.Resources, meant.Resource)
		})
		switch {
		case !meant.Empty() && !isNamed:
			r.field(m, field, "apiGroups %q do not have %s, so the rule allows nothing for it: write %s with the API "+
				"group %q", rule.APIGroups, resource, meant.Resource, meant.Group)
		case m.groupKind() == kinds.Role && s.isOnlyIn(m, rule, resource):
			r.field(m, field, "%s are not in a namespace, and a Role gives rights only in its namespace: write a "+
				"ClusterRole and a ClusterRoleBinding", resource)
		}
	}
}

// isOnlyIn reports whether accounts have a right to a resource outside of namespaces by a role of a namespace only.
func (s *subject) isOnlyIn(role *manifest, rule rbacv1.PolicyRule, resource string) bool {
	rule.Resources = []string{resource}
	accounts := s.allowedBy(role)
	return len(accounts) > 0 && slices.ContainsFunc(rule.APIGroups, func(group string) bool {
		return s.resources().isOutside(schema.GroupResource{Group: group, Resource: resource}, rule.Verbs)
	}) && !slices.ContainsFunc(accounts, func(account kinds.ID) bool {
		return allow(s.rights().grantsOf(account), rule, "", false)
	})
}
