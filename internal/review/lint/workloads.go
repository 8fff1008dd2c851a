package lint

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/pkg/graph"
)

// These rules are about workloads, the accounts and rights that they need, and the objects that operators manage.

// account returns the ServiceAccount of a workload.
func (m *manifest) account() kinds.ID {
	pod := slices.Clip(kinds.PodSpec(m.groupKind()))
	name := cmp.Or(m.text(append(pod, "serviceAccountName")...), m.text(append(pod, "serviceAccount")...), "default")
	return kinds.NewID(kinds.ServiceAccount, m.id.Namespace, name)
}

func checkAccountDeleted(s *subject, r *reporter) {
	for _, t := range s.tombstones {
		if t.groupKind() != kinds.ServiceAccount || s.isCreatedToo(t) {
			continue
		}
		for _, u := range s.usesOf(t) {
			cluster, _ := s.sharedCluster(u.By, t)
			if u.Consequence == references.Collected {
				r.at(t, "%s (%s:%d) has its token, and is deleted with it%s: keep it, or delete the Secret as well",
					u.By.id, u.By.Path, u.By.Line, onCluster(cluster))
				continue
			}
			r.at(t, "%s of %s:%d runs as this ServiceAccount, and can start no pod without it%s: keep it, or delete "+
				"the workload first", u.By.id, u.By.Path, u.By.Line, onCluster(cluster))
		}
	}
}

// checkRBACDeletedFirst looks for tombstones of accounts, roles and bindings that come before the tombstones of the
// workloads that need them.
func checkRBACDeletedFirst(s *subject, r *reporter) {
	var grants []*manifest
	for _, t := range s.tombstones {
		if t.groupKind() == kinds.ServiceAccount || t.isBinding() || t.isRole() {
			grants = append(grants, t)
		}
	}
	if len(grants) == 0 {
		return
	}
	deleted, bound := s.deletedWorkloads(), s.boundAccounts()
	for _, t := range grants {
		isReported := false
		for _, allowed := range s.allowedBy(t) {
			if !bound[allowed] { // it gives no rights
				continue
			}
			for _, w := range deleted[allowed] {
				if isReported = s.shareCluster(t, w.last) && before(t, w.last); isReported {
					r.at(t, "%s needs it, and is only deleted later, by %s:%d: delete that first", w.id, w.last.Path,
						w.last.Line)
					break
				}
			}
			if isReported {
				break
			}
		}
	}
}

// boundAccounts returns the ServiceAccounts that bindings of this or the previous payload name.
func (s *subject) boundAccounts() map[kinds.ID]bool {
	found := map[kinds.ID]bool{}
	for _, x := range []*index{s.index, s.previous} {
		if x == nil {
			continue
		}
		for _, m := range slices.Concat(x.byKind[kinds.RoleBinding], x.byKind[kinds.ClusterRoleBinding]) {
			for _, account := range s.allowedBy(m) {
				found[account] = true
			}
		}
	}
	return found
}

// A deletedWorkload is a workload that an update deletes, and the tombstone that deletes it.
type deletedWorkload struct {
	*manifest
	last *manifest
}

// deletedWorkloads returns the deleted workloads by their ServiceAccounts: those with a tombstone, and
// those of the previous payload in a deleted Namespace.
func (s *subject) deletedWorkloads() map[kinds.ID][]deletedWorkload {
	found := map[kinds.ID][]deletedWorkload{}
	add := func(m, last *manifest) {
		found[m.account()] = append(found[m.account()], deletedWorkload{m, last})
	}
	for _, t := range s.tombstones {
		if kinds.IsWorkload(t.groupKind()) {
			for _, same := range s.withPrevious(t) {
				add(same, t)
			}
		}
		if t.groupKind() == kinds.Namespace && s.previous != nil {
			for _, m := range s.previous.inside[t.id.Name] {
				if kinds.IsWorkload(m.groupKind()) && !m.isTombstone {
					add(m, t)
				}
			}
		}
	}
	return found
}

func (m *manifest) isBinding() bool {
	return m.groupKind() == kinds.RoleBinding || m.groupKind() == kinds.ClusterRoleBinding
}

func (m *manifest) isRole() bool {
	return m.groupKind() == kinds.Role || m.groupKind() == kinds.ClusterRole
}

// allowedBy returns the ServiceAccounts to which a binding or a role gives rights, or the
// ServiceAccount itself.
func (s *subject) allowedBy(m *manifest) []kinds.ID {
	if m.groupKind() == kinds.ServiceAccount {
		return []kinds.ID{m.id}
	}
	bindings := s.withPrevious(m)
	if m.isRole() {
		bindings = s.bindingsOf(m)
	}
	var found []kinds.ID
	for _, same := range bindings {
		subjects, _ := same.get("subjects").([]any)
		for _, subject := range subjects {
			fields, _ := subject.(map[string]any)
			name, _ := fields["name"].(string)
			namespace, _ := fields["namespace"].(string)
			if fields["kind"] == "ServiceAccount" && name != "" {
				id := kinds.NewID(kinds.ServiceAccount, namespace, name)
				if !slices.Contains(found, id) {
					found = append(found, id)
				}
			}
		}
	}
	return found
}

// bindingsOf returns the bindings of a role in this and the previous payload.
func (s *subject) bindingsOf(role *manifest) []*manifest {
	if s.bindings == nil {
		s.bindings = map[kinds.ID][]*manifest{}
		for _, x := range []*index{s.index, s.previous} {
			if x != nil {
				s.addBindings(x)
			}
		}
	}
	return s.bindings[role.id]
}

// addBindings adds the bindings of a payload, by the roles that they name.
func (s *subject) addBindings(x *index) {
	for _, m := range slices.Concat(x.byKind[kinds.RoleBinding], x.byKind[kinds.ClusterRoleBinding]) {
		role := m.role()
		s.bindings[role] = append(s.bindings[role], m)
	}
}

// role returns the role of a binding.
func (m *manifest) role() kinds.ID {
	role := kinds.ID{Group: m.kind.Group, Kind: m.text("roleRef", "kind"), Name: m.text("roleRef", "name")}
	if role.Kind == "Role" {
		role.Namespace = m.id.Namespace
	}
	return role
}

// checkOperatorDeletedFirst looks for tombstones of operators that come before those
// of their operands, whose finalizers would stay.
func checkOperatorDeletedFirst(s *subject, r *reporter) {
	operands := map[string][]*manifest{}
	for _, t := range s.tombstones {
		if name := graph.ParseName(t.File()); name.IsKnown() && s.isOperand(t) {
			operands[name.Component] = append(operands[name.Component], t)
		}
	}
	for _, t := range s.tombstones {
		if !t.isOperator() {
			continue
		}
		component := graph.ParseName(t.File()).Component
		for _, operand := range operands[component] {
			if operand != t && s.shareCluster(operand, t) && before(t, operand) {
				r.at(t, "it seems to operate %s, which is only deleted later, by %s:%d: delete that first, and this "+
					"in a later release, so that it can clean up", operand.id, operand.Path, operand.Line)
				break
			}
		}
	}
}

// isOperator reports whether a workload is an operator, by its name.
func (m *manifest) isOperator() bool {
	return kinds.IsWorkload(m.groupKind()) && m.groupKind() != kinds.Job && strings.Contains(m.id.Name, "operator")
}

// isOperand reports whether an operator may have to clean up an object: another
// workload, a custom resource or a CustomResourceDefinition.
func (s *subject) isOperand(m *manifest) bool {
	return kinds.IsWorkload(m.groupKind()) && !m.isOperator() || s.isCustom(m.groupKind()) ||
		m.groupKind() == kinds.CustomResourceDefinition
}

// isCustom reports whether this or the previous payload defines a kind.
func (s *subject) isCustom(kind schema.GroupKind) bool {
	return len(s.defines[kind]) > 0 || s.previous != nil && len(s.previous.defines[kind]) > 0
}
