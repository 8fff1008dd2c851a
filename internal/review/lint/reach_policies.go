package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// This rule is about requests that NetworkPolicies no longer allow.

// A network is the NetworkPolicies of a payload.
type network struct {
	*subject
	*index
	restrictions map[string][]restriction // by namespace
}

// A restriction is the part of a NetworkPolicy about one direction.
type restriction struct {
	by        *manifest
	direction networkingv1.PolicyType
	selector  labels.Selector
	rules     []networkingv1.NetworkPolicyIngressRule // rules of either direction
}

// A request goes from pods to a port of other pods.
type request struct {
	from, to  *podSet // nil for any
	isOutside bool    // from another namespace, such as that of an Ingress controller
	port      int32
	before    int32 // port in the previous payload; 0 if it has no such request
	protocol  corev1.Protocol
}

// networkOf reads the policies of a payload.
func (s *subject) networkOf(x *index) network {
	n := network{s, x, map[string][]restriction{}}
	for _, m := range x.byKind[kinds.NetworkPolicy] {
		typed := convert[networkingv1.NetworkPolicy](m.Object().Object)
		selector := selectorOf(m.get("spec", "podSelector"))
		if typed == nil || m.isTombstone || selector == nil {
			continue
		}
		ingress := restriction{m, networkingv1.PolicyTypeIngress, selector, typed.Spec.Ingress}
		egress := restriction{m, networkingv1.PolicyTypeEgress, selector, nil}
		for _, rule := range typed.Spec.Egress {
			egress.rules = append(egress.rules, networkingv1.NetworkPolicyIngressRule{Ports: rule.Ports, From: rule.To})
		}
		types := typed.Spec.PolicyTypes
		if len(types) == 0 || slices.Contains(types, ingress.direction) {
			n.restrictions[m.id.Namespace] = append(n.restrictions[m.id.Namespace], ingress)
		}
		if len(types) == 0 && len(egress.rules) > 0 || slices.Contains(types, egress.direction) {
			n.restrictions[m.id.Namespace] = append(n.restrictions[m.id.Namespace], egress)
		}
	}
	return n
}

// closed returns the restrictions of pods in a direction, if none allows a request. Policies are not for pods
// in the network of a node.
func (n network) closed(direction networkingv1.PolicyType, q request) (found []restriction) {
	pods := q.to
	if direction == networkingv1.PolicyTypeEgress {
		pods = q.from
	}
	if spec := pods.typed(); spec == nil || spec.HostNetwork {
		return nil
	}
	for _, policy := range n.restrictions[pods.by.id.Namespace] {
		if policy.direction == direction && policy.selector.Matches(pods.labels) && n.shareCluster(policy.by, pods.by) {
			found = append(found, policy)
			if slices.ContainsFunc(policy.rules, func(rule networkingv1.NetworkPolicyIngressRule) bool {
				return n.allows(policy, rule, q)
			}) {
				return nil
			}
		}
	}
	return found
}

// allows reports whether a rule allows a request.
func (n network) allows(policy restriction, rule networkingv1.NetworkPolicyIngressRule, q request) bool {
	other := q.from
	if policy.direction == networkingv1.PolicyTypeEgress {
		other = q.to
	}
	return (len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, q.isTo)) &&
		(len(rule.From) == 0 || slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
			return n.meets(policy, peer, other, q.isOutside)
		}))
}

// isTo reports whether a request may be to a port of a policy.
func (r request) isTo(port networkingv1.NetworkPolicyPort) bool {
	protocol := corev1.ProtocolTCP
	if port.Protocol != nil {
		protocol = *port.Protocol
	}
	switch {
	case port.Port == nil || !isSameProtocol(protocol, r.protocol):
		return isSameProtocol(protocol, r.protocol)
	case r.to == nil:
		return port.Port.Type == intstr.String || port.Port.IntVal == r.port || port.EndPort != nil
	default:
		number := r.to.portOf(*port.Port, protocol)
		return number == r.port || port.EndPort != nil && number <= r.port && r.port <= *port.EndPort
	}
}

// meets reports whether a peer of a policy may be some pods; if these are nil, whether it may be any.
func (n network) meets(policy restriction, peer networkingv1.NetworkPolicyPeer, pods *podSet, isOutside bool) bool {
	isNear := peer.NamespaceSelector == nil
	switch {
	case peer.IPBlock != nil:
		return true
	case isOutside || pods == nil && !isNear:
		return !isNear
	case pods == nil:
		return n.subject.othersMakePods(policy.by.id.Namespace) ||
			len(n.podsWith(labelSelector(peer.PodSelector), policy.by, n.index)) > 0
	case isNear:
		return pods.by.id.Namespace == policy.by.id.Namespace && labelSelector(peer.PodSelector).Matches(pods.labels)
	}
	for _, m := range n.namespaces(pods.by.id.Namespace) {
		set := labels.Merge(m.Object().GetLabels(), map[string]string{corev1.LabelMetadataName: m.id.Name})
		if !labelSelector(peer.NamespaceSelector).Matches(set) {
			return false
		}
	}
	return peer.PodSelector == nil || labelSelector(peer.PodSelector).Matches(pods.labels)
}

// labelSelector returns a selector that matches nothing if it is invalid, or there is none.
func labelSelector(field *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(field)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// A policyChecker reports requests that the policies of this payload do not allow, and those of the previous one do.
type policyChecker struct {
	*subject
	*reporter
	now, before network
	callers     map[kinds.ID][]caller
	// why the requests are needed that are no longer allowed, by their targets
	closed map[restrictionKey]map[string]string
}

// A restrictionKey is a direction of a NetworkPolicy.
type restrictionKey struct {
	by        *manifest
	direction networkingv1.PolicyType
}

func checkPolicyClosed(s *subject, r *reporter) {
	closed := map[restrictionKey]map[string]string{}
	c := policyChecker{s, r, s.networkOf(s.index), s.networkOf(s.previous), s.callers(), closed}
	if len(c.now.restrictions) == 0 {
		return
	}
	each(s, kinds.Service, func(m *manifest, service *corev1.Service) {
		if len(c.now.restrictions[m.id.Namespace]) == 0 && len(c.callers[m.id]) == 0 {
			return
		}
		pods, _, _ := s.selected(m)
		for _, p := range pods {
			for _, port := range service.Spec.Ports {
				number := p.targetOf(port)
				q := request{to: &p, port: number, before: s.targetBefore(m, p, port), protocol: port.Protocol}
				if p.declares(number) && !c.report(networkingv1.PolicyTypeIngress, q, m.id.String()+" leads there") {
					c.checkClients(m, q, port)
				}
			}
		}
	})
	c.checkNames()
	for key, targets := range c.closed {
		field, names := strings.ToLower(string(key.direction)), sortedKeys(targets)
		report := func(names []string) {
			r.field(key.by, []string{"spec", field}, "its %s allows no requests to %s, and %s", field,
				printable.Few(names, maxParts), targets[names[0]])
		}
		if len(names) > maxParts {
			report(names)
			continue
		}
		for i := range names {
			report(names[i : i+1])
		}
	}
}

// checkClients checks the requests of known clients of a Service: Ingresses, and pods that name its host.
func (c policyChecker) checkClients(m *manifest, q request, port corev1.ServicePort) {
	for _, use := range c.graph.Uses[m.id] {
		if use.By.groupKind() == kinds.Ingress && len(c.byKind[kinds.IngressClass]) == 0 {
			outside := q
			outside.isOutside = true
			c.report(networkingv1.PolicyTypeIngress, outside, fmt.Sprintf("the controller of %s (%s:%d) sends "+
				"requests there from another namespace", use.By.id, use.By.Path, use.By.Line))
		}
	}
	isHeadless := m.text("spec", "clusterIP") == corev1.ClusterIPNone
	for _, caller := range c.callers[m.id] {
		if by := caller.pods.by; by.id != q.to.by.id && (isHeadless || caller.port == 0 || caller.port == port.Port) {
			q.from = &caller.pods
			why := fmt.Sprintf("%s (%s:%d) calls the host %s", by.id, by.Path, by.Line, caller.host)
			c.report(networkingv1.PolicyTypeIngress, q, why)
			c.report(networkingv1.PolicyTypeEgress, q, why)
		}
	}
}

// checkNames checks that pods can resolve names, if they call others by name or policies name pods that they may call.
func (c policyChecker) checkNames() {
	isCaller := map[*manifest]bool{}
	for _, callers := range c.callers {
		for _, caller := range callers {
			isCaller[caller.pods.by] = true
		}
	}
	for namespace := range c.now.restrictions {
		for _, p := range c.pods()[namespace] {
			q := request{from: &p, port: 53, before: 53, protocol: corev1.ProtocolUDP}
			found := c.now.closed(networkingv1.PolicyTypeEgress, q)
			isNear := slices.ContainsFunc(found, func(policy restriction) bool {
				return slices.ContainsFunc(policy.rules, func(rule networkingv1.NetworkPolicyIngressRule) bool {
					return slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
						return peer.PodSelector != nil
					})
				})
			})
			other := q
			other.port = 5353 // port of the pods for DNS in OpenShift
			if (isNear || isCaller[p.by]) && len(c.now.closed(networkingv1.PolicyTypeEgress, other)) > 0 {
				c.report(networkingv1.PolicyTypeEgress, q, "its pods can't resolve names without that")
			}
		}
	}
}

// report reports a request that policies no longer allow, and returns whether they do not.
func (c policyChecker) report(direction networkingv1.PolicyType, q request, why string) (isClosed bool) {
	found := c.now.closed(direction, q)
	if len(found) == 0 {
		return false
	}
	old := request{c.oneBefore(q.from), c.oneBefore(q.to), q.isOutside, q.before, 0, q.protocol}
	isNew := q.before == 0 || (old.from == nil) != (q.from == nil) || (old.to == nil) != (q.to == nil)
	if !isNew && len(c.before.closed(direction, old)) > 0 {
		return true
	}
	target := fmt.Sprintf("port %d", q.port)
	if q.to != nil {
		target += " of " + q.to.by.id.String()
	}
	if q.from != nil {
		target += " from " + q.from.by.id.String()
	}
	first := found[0]
	key := restrictionKey{first.by, direction}
	if _, isKnown := c.closed[key]; !isKnown {
		c.closed[key] = map[string]string{}
	}
	c.closed[key][target] = cmp.Or(c.closed[key][target], why+": "+first.describe())
	return true
}

// oneBefore returns the pods of a workload in the previous payload; nil if it has none.
func (c policyChecker) oneBefore(pods *podSet) *podSet {
	if pods != nil {
		for _, old := range c.podsBefore(*pods) {
			return &old
		}
	}
	return nil
}

// targetBefore returns the port of pods to which a port of a Service led in the previous payload; 0 if there is none.
func (s *subject) targetBefore(m *manifest, now podSet, port corev1.ServicePort) int32 {
	for _, m := range s.previous.byID[m.id] {
		service, selector := convert[corev1.Service](m.Object().Object), m.podSelector()
		if service == nil || m.isTombstone || selector == nil {
			continue
		}
		for _, old := range service.Spec.Ports {
			for _, pods := range s.podsBefore(now) {
				if old.Port == port.Port && selector.Matches(pods.labels) {
					return pods.targetOf(old)
				}
			}
		}
	}
	return 0
}

// describe returns the ports and peers of a restriction.
func (r restriction) describe() string {
	var parts []string
	for _, rule := range r.rules {
		for _, port := range rule.Ports {
			if port.Port != nil {
				parts = append(parts, "port "+port.Port.String())
			}
		}
		for _, peer := range rule.From {
			if peer.PodSelector != nil {
				parts = append(parts, fmt.Sprintf("podSelector %q", labelSelector(peer.PodSelector)))
			}
		}
	}
	if len(r.rules) == 0 {
		return "add a rule, since it has none"
	}
	return "correct its rules (" + printable.Few(parts, maxParts) + "), or add one"
}

// maxParts limits the ports and peers that a sentence names, and the findings about one direction of a policy.
const maxParts = 4
