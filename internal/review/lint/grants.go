package lint

import (
	"reflect"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A grant is a rule that a binding gives to an account.
type grant struct {
	rbacv1.PolicyRule
	binding *manifest
	role    *manifest // the role that has the rule; nil if others have the role of the binding
}

// isForeign reports whether a grant has the rules of a role that others have. Its only resource is then that role.
func (g grant) isForeign() bool { return g.role == nil && g.Resources[0] != rbacv1.ResourceAll }

// equals reports whether bindings of the same name give the same rule.
func (g grant) equals(other grant) bool {
	return g.binding.id == other.binding.id && reflect.DeepEqual(g.PolicyRule, other.PolicyRule)
}

// An authorizer finds the rights of accounts after a payload is applied.
type authorizer struct {
	roles        map[kinds.ID][]*manifest
	clusterRoles []*manifest
	bindings     map[string][]*manifest // by the names of their subjects, see nameOf
}

func newAuthorizer(manifests []*manifest) *authorizer {
	a := &authorizer{roles: map[kinds.ID][]*manifest{}, bindings: map[string][]*manifest{}}
	for _, m := range manifests {
		if m.isRole() {
			a.roles[m.id] = append(a.roles[m.id], m)
		}
		if m.groupKind() == kinds.ClusterRole {
			a.clusterRoles = append(a.clusterRoles, m)
		}
		if !m.isBinding() || m.isTombstone {
			continue
		}
		for _, subject := range m.subjects() {
			a.bindings[nameOf(subject)] = append(a.bindings[nameOf(subject)], m)
		}
	}
	return a
}

// subjects returns the subjects of a binding.
func (m *manifest) subjects() []rbacv1.Subject {
	if binding := convert[rbacv1.ClusterRoleBinding](m.Object().Object); binding != nil {
		return binding.Subjects
	}
	return nil
}

// nameOf returns the kind and the name that requests have for a subject.
func nameOf(subject rbacv1.Subject) string {
	if subject.Kind == rbacv1.ServiceAccountKind {
		return "User system:serviceaccount:" + subject.Namespace + ":" + subject.Name
	}
	return subject.Kind + " " + subject.Name
}

// namesOf returns the names of subjects that an account has.
func namesOf(account kinds.ID) []string {
	return []string{
		"User system:serviceaccount:" + account.Namespace + ":" + account.Name,
		"Group system:serviceaccounts:" + account.Namespace, "Group system:serviceaccounts",
		"Group system:authenticated",
	}
}

// grantsOf returns the rules that bindings give to an account.
func (a *authorizer) grantsOf(account kinds.ID) (found []grant) {
	for _, name := range namesOf(account) {
		for _, binding := range a.bindings[name] {
			for _, g := range a.rulesOf(binding.role()) {
				found = append(found, grant{g.PolicyRule, binding, g.role})
			}
		}
	}
	return found
}

// aggregateTo is the prefix of the labels of roles whose rules Kubernetes' own roles have as well.
const aggregateTo = "rbac.authorization.k8s.io/aggregate-to-"

// rulesOf returns the rules of a role, without a binding.
func (a *authorizer) rulesOf(id kinds.ID) (found []grant) {
	everything := []string{rbacv1.ResourceAll}
	foreign := grant{PolicyRule: rbacv1.PolicyRule{Verbs: []string{"use"}, Resources: []string{id.String()}}}
	foreign.APIGroups = []string{""}
	switch {
	case id.Kind == "ClusterRole" && id.Name == "cluster-admin":
		foreign.PolicyRule = rbacv1.PolicyRule{Verbs: everything, APIGroups: everything, Resources: everything}
		return []grant{foreign}
	case len(a.roles[id]) == 0:
		return []grant{foreign}
	}
	for _, role := range a.roles[id] {
		aggregation := convert[rbacv1.AggregationRule](role.get("aggregationRule"))
		switch {
		case aggregation == nil:
			found = append(found, grantsIn(role)...)
		case slices.ContainsFunc(aggregation.ClusterRoleSelectors, selectsBuiltIn):
			found = append(found, foreign)
		default:
			found = append(found, a.partsOf(aggregation)...)
		}
	}
	return found
}

// grantsIn returns the rules in a manifest, without a binding; none if it is not a role, or a tombstone.
func grantsIn(m *manifest) (found []grant) {
	if !m.isRole() || m.isTombstone {
		return nil
	}
	if typed := convert[rbacv1.ClusterRole](m.Object().Object); typed != nil {
		for _, rule := range typed.Rules {
			found = append(found, grant{PolicyRule: rule, role: m})
		}
	}
	return found
}

// partsOf returns the rules of the roles that an aggregated role selects.
func (a *authorizer) partsOf(aggregation *rbacv1.AggregationRule) (found []grant) {
	for _, part := range a.clusterRoles {
		isSelected := func(s metav1.LabelSelector) bool {
			selector, err := metav1.LabelSelectorAsSelector(&s)
			return err == nil && selector.Matches(labels.Set(part.Object().GetLabels()))
		}
		if slices.ContainsFunc(aggregation.ClusterRoleSelectors, isSelected) {
			found = append(found, grantsIn(part)...)
		}
	}
	return found
}

// selectsBuiltIn reports whether a selector selects roles of Kubernetes.
func selectsBuiltIn(selector metav1.LabelSelector) bool {
	return slices.ContainsFunc(sortedKeys(selector.MatchLabels), func(key string) bool {
		return strings.HasPrefix(key, aggregateTo)
	})
}

// allow reports whether grants allow a request in a namespace, or "" for the whole cluster. With byNames, it is enough
// that they allow it for objects of some names.
func allow(grants []grant, right rbacv1.PolicyRule, namespace string, byNames bool) bool {
	return slices.ContainsFunc(grants, func(g grant) bool {
		rule := g.PolicyRule
		if byNames {
			rule.ResourceNames = nil
		}
		isCovered, _ := validation.Covers([]rbacv1.PolicyRule{rule}, []rbacv1.PolicyRule{right})
		return isCovered && (g.binding.id.Namespace == "" || g.binding.id.Namespace == namespace)
	})
}
