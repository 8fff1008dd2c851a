package lint

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// This rule is about pods that fit on no node.

// The labels that Kubernetes sets on nodes, and some of their values.
var (
	nodeLabels = []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelTopologyZone,
		corev1.LabelTopologyRegion, corev1.LabelInstanceTypeStable}
	nodeValues = map[string][]string{
		corev1.LabelOSStable:   {"linux", "windows"},
		corev1.LabelArchStable: {"amd64", "arm64", "arm", "ppc64le", "s390x", "riscv64", "loong64", "386"},
	}
)

func checkUnschedulable(s *subject, r *reporter) {
	s.eachPods(func(pods podSet, spec *corev1.PodSpec) {
		checkNodes(pods, spec, r)
		s.checkNeighbours(pods, spec, r)
	})
	s.checkTakenPorts(r)
	if s.previous != nil {
		s.podPairs(func(old, now podSet) { s.checkNewDemands(old, now, r) })
	}
}

// checkTakenPorts looks for ports of nodes that a DaemonSet has on all nodes.
func (s *subject) checkTakenPorts(r *reporter) {
	holders := map[int32]podSet{}
	s.eachPods(func(pods podSet, spec *corev1.PodSpec) {
		for port := range hostPorts(spec) {
			if pods.by.groupKind() == kinds.DaemonSet && len(spec.NodeSelector) == 0 && spec.Affinity == nil {
				holders[port] = pods
			}
		}
	})
	s.eachPods(func(pods podSet, spec *corev1.PodSpec) {
		for port, field := range hostPorts(spec) {
			if holder, isTaken := holders[port]; isTaken && holder.by.id != pods.by.id && pods.restarts() &&
				s.shareCluster(holder.by, pods.by) {
				pods.field(r, field, "%s has the hostPort %d on all nodes, so the pods are not scheduled: use another "+
					"port, or a Service", holder.by.named(), port)
			}
		}
	})
}

// hostPorts returns the fields of pods that take ports of nodes, by port.
func hostPorts(spec *corev1.PodSpec) map[int32]string {
	found := map[int32]string{}
	for i, container := range spec.Containers {
		for j, port := range container.Ports {
			number := port.HostPort
			if spec.HostNetwork {
				number = port.ContainerPort
			}
			if number != 0 && port.HostIP == "" && port.Protocol != corev1.ProtocolUDP {
				found[number] = fmt.Sprintf("containers|%d|ports|%d|hostPort", i, j)
			}
		}
	}
	return found
}

// checkNodes looks for demands that no node meets.
func checkNodes(pods podSet, spec *corev1.PodSpec, r *reporter) {
	for _, key := range sortedKeys(spec.NodeSelector) {
		if problem := problemOfNodeLabel(key, spec.NodeSelector[key]); problem != "" {
			pods.field(r, "nodeSelector|"+key, "%s, so the pods are not scheduled", problem)
		}
	}
	for i, spread := range spec.TopologySpreadConstraints {
		problem := problemOfNodeLabel(spread.TopologyKey, "")
		if problem != "" && spread.WhenUnsatisfiable == corev1.DoNotSchedule {
			field := fmt.Sprintf("topologySpreadConstraints|%d|topologyKey", i)
			pods.field(r, field, "%s, so the pods are not scheduled", problem)
		}
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for i := 0; required != nil && i < len(required.NodeSelectorTerms); i++ {
		problem := problemOfTerm(required.NodeSelectorTerms[i], spec.NodeSelector)
		if problem == "" {
			return // one of the terms is enough
		}
		if i == len(required.NodeSelectorTerms)-1 {
			pods.field(r, "affinity|nodeAffinity", "%s, so the pods are not scheduled", problem)
		}
	}
}

// problemOfNodeLabel returns why no node has a label, of any value if the value is ""; "" if a node may have it.
func problemOfNodeLabel(key, value string) string {
	if values := nodeValues[key]; values != nil && value != "" && !slices.Contains(values, value) {
		return fmt.Sprintf("no node has the label %s: %s, whose values are %s", key, value, strings.Join(values, ", "))
	}
	domain, name, _ := strings.Cut(key, "/")
	isReserved := domain == "kubernetes.io" || domain == "topology.kubernetes.io" || domain == "node.kubernetes.io"
	for _, known := range nodeLabels {
		isLike := strings.HasSuffix(known, "/"+name) || strings.HasPrefix(known, key) ||
			printable.EditDistance(known, key) <= 2
		if isReserved && isLike && !slices.Contains(nodeLabels, key) {
			return fmt.Sprintf("no node has the label %s, which should be %s", key, known)
		}
	}
	return ""
}

// problemOfTerm returns why no node that has the selected labels meets a term; "" if one may do so.
func problemOfTerm(term corev1.NodeSelectorTerm, selected map[string]string) string {
	for _, wanted := range term.MatchExpressions {
		value, isSelected := selected[wanted.Key]
		isListed := slices.Contains(wanted.Values, value)
		switch {
		case isSelected && wanted.Operator == corev1.NodeSelectorOpIn && !isListed,
			isSelected && wanted.Operator == corev1.NodeSelectorOpNotIn && isListed,
			isSelected && wanted.Operator == corev1.NodeSelectorOpDoesNotExist:
			return fmt.Sprintf("nodeAffinity does not allow the label %s: %s of nodeSelector", wanted.Key, value)
		case wanted.Operator == corev1.NodeSelectorOpIn && len(wanted.Values) == 1:
			if problem := problemOfNodeLabel(wanted.Key, wanted.Values[0]); problem != "" {
				return problem
			}
		}
	}
	return ""
}

// checkNeighbours looks for pods that want neighbours which do not exist, or that must be apart from each other on more
// nodes than there may be.
func (s *subject) checkNeighbours(pods podSet, spec *corev1.PodSpec, r *reporter) {
	namespace, replicas := pods.by.id.Namespace, pods.by.number(1, "spec", "replicas")
	if spec.Affinity != nil && spec.Affinity.PodAffinity != nil && !s.othersMakePods(namespace) {
		for _, term := range spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			selector := selectorFor(term)
			if selector != nil && len(s.podsWith(selector, pods.by, s.index)) == 0 {
				pods.field(r, "affinity|podAffinity", "podAffinity wants a node with a pod of the labels %s, which "+
					"no template in %s has, so the pods are not scheduled", selector, namespace)
			}
		}
	}
	rolling := pods.by.get("spec", "strategy", "rollingUpdate", "maxUnavailable")
	if spec.Affinity == nil || spec.Affinity.PodAntiAffinity == nil || replicas < 3 || !s.wereTogether(pods) ||
		rolling != int64(0) && rolling != "0%" {
		return
	}
	for _, term := range spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		selector := selectorFor(term)
		if selector != nil && selector.Matches(pods.labels) && term.TopologyKey == corev1.LabelHostname {
			pods.field(r, "affinity|podAntiAffinity", "podAntiAffinity wants a node for each of %d replicas, and "+
				"maxUnavailable 0 one more for each new pod, so an update waits for ever on %d nodes: allow "+
				"maxUnavailable: 1, or prefer it instead", replicas, replicas)
		}
	}
}

// wereTogether reports whether pods could be on one node in the previous payload. In a first release, there may be
// nodes for all of them.
func (s *subject) wereTogether(now podSet) bool {
	old := s.podsBefore(now)
	if old == nil || old.typed() == nil {
		return false
	}
	return old.typed().Affinity == nil || old.typed().Affinity.PodAntiAffinity == nil
}

// selectorFor returns the selector of a term for all pods of the own namespace; nil if it is for others.
func selectorFor(term corev1.PodAffinityTerm) labels.Selector {
	if len(term.Namespaces)+len(term.MatchLabelKeys)+len(term.MismatchLabelKeys) > 0 || term.NamespaceSelector != nil ||
		term.LabelSelector == nil {
		return nil
	}
	selector, _ := metav1.LabelSelectorAsSelector(term.LabelSelector) // nil if it is invalid
	return selector
}

// checkNewDemands looks for demands on nodes and schedulers that nothing in the previous payload has.
func (s *subject) checkNewDemands(old, now podSet, r *reporter) {
	before, after := old.typed(), now.typed()
	demands := demandsOf(after).Difference(demandsOf(before))
	for _, others := range s.previous.pods() {
		for i := 0; i < len(others) && len(demands) > 0; i++ {
			demands = demands.Difference(demandsOf(others[i].typed()))
		}
	}
	for _, demand := range sets.List(demands) {
		now.field(r, "nodeSelector", "no pods of the previous payload want a node with %s, and these are not "+
			"scheduled where no node has it: prepare nodes before the update, or drop the demand", demand)
	}
	if after.NodeName != "" && before.NodeName == "" {
		now.field(r, "nodeName", "nodeName binds all pods to the node %s, and they stop with it: remove it",
			after.NodeName)
	}
	if name := after.SchedulerName; name != "" && name != corev1.DefaultSchedulerName && name != before.SchedulerName &&
		!slices.ContainsFunc(s.normal, func(m *manifest) bool { return m.id.Name == name }) {
		now.field(r, "schedulerName", "schedulerName is %s, and nothing in the payload is called so: the pods are "+
			"not scheduled without that scheduler", name)
	}
}

// demandsOf returns the labels and devices that not all nodes have, and that pods want.
func demandsOf(spec *corev1.PodSpec) sets.Set[string] {
	found := sets.New[string]()
	add := func(what, key, values string) {
		if !strings.Contains(key, "kubernetes.io/") { // all nodes have these, or other checks look at them
			found.Insert("the " + what + " " + key + values)
		}
	}
	if spec == nil {
		return found
	}
	for key, value := range spec.NodeSelector {
		add("nodeSelector", key, ": "+value)
	}
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		if required != nil && len(required.NodeSelectorTerms) == 1 {
			for _, wanted := range required.NodeSelectorTerms[0].MatchExpressions {
				if wanted.Operator == corev1.NodeSelectorOpIn || wanted.Operator == corev1.NodeSelectorOpExists {
					add("nodeAffinity", wanted.Key, " in "+fmt.Sprint(wanted.Values))
				}
			}
		}
	}
	for _, container := range spec.Containers {
		for name := range container.Resources.Limits {
			if strings.Contains(string(name), "/") {
				add("device", string(name), "")
			}
		}
	}
	return found
}
