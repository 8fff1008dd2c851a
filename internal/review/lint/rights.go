package lint

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// rightsRules are about rights that programs of the payload need, and do not have.
func rightsRules() []Rule {
	return []Rule{
		{"rights-lost", Warning, needsPrevious, checkRightsLost},
		{"credentials-lost", Warning, needsPrevious, checkCredentialsLost},
		{"rights-without-effect", Warning, nothing, checkRightsWithoutEffect},
	}
}

// programs calls report for the pods of each workload that the previous payload has, too. Jobs are left out: theirs
// have run.
func (s *subject) programs(report func(old, now podSet)) {
	s.eachPods(func(now podSet, _ *corev1.PodSpec) {
		old := s.podsBefore(now)
		if old != nil && old.typed() != nil && !now.by.isTest && now.by.groupKind() != kinds.Job {
			report(*old, now)
		}
	})
}

// runsSame reports whether pods run the programs of others.
func (p podSet) runsSame(old podSet) bool {
	return slices.EqualFunc(p.typed().Containers, old.typed().Containers, func(a, b corev1.Container) bool {
		return a.Image == b.Image && slices.Equal(a.Command, b.Command) && slices.Equal(a.Args, b.Args)
	})
}

// checkRightsLost looks for rights that the account of a workload had in the previous payload, and no longer has.
func checkRightsLost(s *subject, r *reporter) {
	before, isReported := newAuthorizer(s.previous.manifests), map[*manifest]bool{}
	s.programs(func(old, now podSet) {
		has := s.rights().grantsOf(now.by.account())
		takers, fields := map[*manifest][]grant{}, map[*manifest][]string{}
		for _, g := range s.lost(before.grantsOf(old.by.account()), has) {
			if taker, field := s.takerOf(g, old, now); taker != nil && !isReported[taker] {
				takers[taker], fields[taker] = append(takers[taker], g), field
			}
		}
		for taker, lost := range takers {
			isReported[taker] = true
			report := r.field
			if !now.runsSame(old) && s.mayNeedLess(old, now, has) && !slices.ContainsFunc(lost, now.usesRight) {
				report = r.note
			}
			how := "the change of its " + strings.Join(fields[taker], ".")
			switch {
			case fields[taker] == nil:
				how = "its delete"
			case taker == now.by && now.spec["serviceAccountName"] == nil:
				how += " in new clusters (others keep the deprecated field serviceAccount)"
			}
			report(taker, fields[taker], "with %s, the pods of %s may no longer %s as %s: keep these rights while a "+
				"program needs them", how, now.by.named(), describeRights(lost, has), now.by.account())
		}
	})
	s.pairs(func(old, m *manifest) {
		for key, value := range old.Object().GetLabels() {
			whole, isPart := strings.CutPrefix(key, aggregateTo)
			if isPart && value == "true" && m.Object().GetLabels()[key] != value {
				r.field(m, []string{"metadata", "labels"}, "without its label %s, the ClusterRole %s no longer has "+
					"its rules, and no account has them by that role: keep the label", key, whole)
			}
		}
	})
}

// mayNeedLess reports whether a new program may need fewer rights: it keeps some, its pods get no token, or they get
// that of the default account because the release deletes their own.
func (s *subject) mayNeedLess(old, now podSet, has []grant) bool {
	withoutToken, _ := s.withoutToken(now)
	isDropped := now.by.account().Name == "default" && len(tombstonesOf(s.byID[old.by.account()])) > 0
	return len(has) > 0 || withoutToken != nil || isDropped
}

// lost returns the rights that had some effect and are no longer there, each with one verb and one resource. It leaves
// out those that are there but misspelt, which the rule rights-without-effect reports.
func (s *subject) lost(had, has []grant) (lost []grant) {
	if slices.EqualFunc(had, has, grant.equals) {
		return nil
	}
	meant := slices.Clone(has)
	for i := range meant {
		meant[i].PolicyRule = s.resources().corrected(meant[i].PolicyRule)
	}
	for _, g := range has {
		if g.isForeign() && !allow(had, g.PolicyRule, g.binding.id.Namespace, false) {
			return nil // others know its rules
		}
	}
	for _, g := range had {
		if g.isForeign() && len(s.byID[g.binding.role()]) > 0 {
			continue // the role is in the payload now
		}
		for _, right := range validation.BreakdownRule(g.PolicyRule) {
			namespace := g.binding.id.Namespace
			if !allow(meant, right, namespace, false) && s.resources().hasEffect(right, namespace) &&
				!s.isNarrowed(has, right, namespace) {
				lost = append(lost, grant{right, g.binding, g.role})
			}
		}
	}
	return lost
}

// usesRight reports whether the arguments of pods show that their program uses a right: by a command of kubectl, or by
// an election of a leader, which needs Leases in their namespace.
func (p podSet) usesRight(g grant) bool {
	if len(g.Resources) == 0 {
		return false
	}
	var arguments []string
	isElecting := false
	for _, text := range p.texts() {
		arguments = append(arguments, text.value)
		isElecting = isElecting || text.value == "--leader-elect" || text.value == "--leader-elect=true"
	}
	if g.Resources[0] == "leases" {
		return isElecting && g.binding.id.Namespace == p.by.id.Namespace
	}
	command := "kubectl " + g.Verbs[0] + " " + strings.TrimSuffix(g.Resources[0], "s")
	return strings.Contains(strings.Join(arguments, " "), command)
}

// isNarrowed reports whether grants still allow a request that has the name of its object, for some names. Names of
// ConfigMaps and Secrets that nothing creates do not count.
func (s *subject) isNarrowed(has []grant, right rbacv1.PolicyRule, namespace string) bool {
	if len(right.Resources) == 0 || !slices.Contains([]string{"get", "update", "patch", "delete"}, right.Verbs[0]) {
		return false
	}
	data := map[string]schema.GroupKind{"configmaps": kinds.ConfigMap, "secrets": kinds.Secret}
	kind, isData := data[right.Resources[0]]
	exists := func(name string) bool {
		id := kinds.NewID(kind, namespace, name)
		return !isData || namespace == "" || s.normalOf(id) != nil || s.isCreatedByController(id) ||
			s.isKnownObject(id)
	}
	return allow(slices.DeleteFunc(slices.Clone(has), func(g grant) bool {
		return !slices.ContainsFunc(g.ResourceNames, exists)
	}), right, namespace, true)
}

// takerOf returns the manifest, and its field, that takes a right from pods; nil if another rule reports it.
func (s *subject) takerOf(lost grant, old, now podSet) (taker *manifest, field []string) {
	binding, account := s.normalOf(lost.binding.id), now.by.account()
	switch {
	case account != old.by.account() && now.spec["serviceAccountName"] == nil &&
		len(tombstonesOf(s.byID[old.by.account()])) > 0: // reported by change-not-made
		return nil, nil
	case account != old.by.account():
		return now.by, append(slices.Clone(now.path), "serviceAccountName")
	case binding == nil && len(s.byID[lost.binding.id]) > 0:
		return s.byID[lost.binding.id][0], nil
	case binding == nil: // deleted with its Namespace
		return nil, nil
	case !slices.ContainsFunc(binding.subjects(), func(subject rbacv1.Subject) bool {
		return slices.Contains(namesOf(account), nameOf(subject))
	}):
		return binding, []string{"subjects"}
	case binding.role() != lost.binding.role() || lost.role == nil:
		return binding, []string{"roleRef"}
	}
	switch role := s.normalOf(lost.role.id); {
	case role == nil:
		return nil, nil
	case role.get("aggregationRule") != nil:
		return role, []string{"aggregationRule"}
	case role.id != binding.role() && !maps.Equal(role.Object().GetLabels(), lost.role.Object().GetLabels()):
		return role, []string{"metadata", "labels"}
	default:
		return role, []string{"rules"}
	}
}

// normalOf returns the first manifest of an object that is not a tombstone; nil if there is none.
func (s *subject) normalOf(id kinds.ID) *manifest {
	i := slices.IndexFunc(s.byID[id], func(m *manifest) bool { return !m.isTombstone })
	if i < 0 {
		return nil
	}
	return s.byID[id][i]
}

// maxDescribed limits the rights in a message.
const maxDescribed = 5

// describeRights returns rights with one verb and one resource each. It mentions names that limit those that are left.
func describeRights(lost, left []grant) string {
	var texts []string
	for _, g := range lost {
		text := g.Verbs[0] + " " + strings.Join(g.NonResourceURLs, "")
		if len(g.Resources) > 0 {
			text += schema.GroupResource{Group: g.APIGroups[0], Resource: g.Resources[0]}.String()
		}
		if len(g.ResourceNames) > 0 {
			text += " " + g.ResourceNames[0]
		}
		if g.binding.id.Namespace != "" && allow(left, g.PolicyRule, g.binding.id.Namespace, true) {
			text += " (resourceNames do not allow it)"
		}
		texts = append(texts, text)
	}
	return printable.Few(texts, maxDescribed)
}

// cloudIdentities are the annotations of ServiceAccounts for which clouds give their pods an account of the cloud.
var cloudIdentities = []string{"eks.amazonaws.com/role-arn", "iam.gke.io/gcp-service-account",
	"azure.workload.identity/client-id"}

// checkCredentialsLost looks for pods that no longer get the token with which they use their rights, an account of the
// cloud, or a Secret with which they pull their images.
func checkCredentialsLost(s *subject, r *reporter) {
	s.pairs(func(old, m *manifest) {
		for _, key := range cloudIdentities {
			if old.annotations[key] != "" && m.annotations[key] == "" && m.groupKind() == kinds.ServiceAccount {
				r.field(m, []string{"metadata", "annotations"}, "it no longer has the annotation %s, by which its "+
					"pods are %s in the cloud: keep it", key, old.annotations[key])
			}
		}
	})
	s.programs(func(old, now podSet) {
		account := now.by.account()
		grants := slices.DeleteFunc(s.rights().grantsOf(account), func(g grant) bool {
			return slices.Equal(g.Verbs, []string{"use"}) // no program needs a token to be admitted
		})
		by, field := s.withoutToken(now)
		if had, _ := s.previous.withoutToken(old); by != nil && had == nil && len(grants) > 0 {
			r.field(by, field, "automountServiceAccountToken leaves %s without the token of %s, to which %s gives "+
				"rights: drop the field, or the binding", now.by.id, account, grants[0].binding.named())
		}
		had := s.pullSecrets(s.previous, old)
		if len(had) == 0 || len(s.pullSecrets(s.index, now)) > 0 || !now.sharesImage(old) {
			return
		}
		id := kinds.NewID(kinds.Secret, account.Namespace, had[0].Name)
		if s.normalOf(id) != nil || !s.isInPrevious(id) {
			r.field(now.by, append(slices.Clone(now.path), "imagePullSecrets"), "neither its imagePullSecrets nor "+
				"those of %s have %s any more, so a node that does not have its images can't pull them: name it again",
				account, id.Name)
		}
	})
}

// withoutToken returns the manifest and the field by which pods get no token; nil if they get one.
func (ix *index) withoutToken(p podSet) (*manifest, []string) {
	const field = "automountServiceAccountToken"
	hasVolume := slices.ContainsFunc(p.typed().Volumes, func(v corev1.Volume) bool { return v.Projected != nil })
	isOn, isSet := p.spec[field].(bool)
	switch {
	case hasVolume || isOn:
		return nil, nil
	case isSet:
		return p.by, append(slices.Clone(p.path), field)
	}
	for _, account := range ix.byID[p.by.account()] {
		if account.get(field) == false {
			return account, []string{field}
		}
	}
	return nil, nil
}
