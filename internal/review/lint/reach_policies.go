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

const (
	ingress = networkingv1.PolicyTypeIngress
	egress  = networkingv1.PolicyTypeEgress
)

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
		if typed == nil || m.isTombstone {
			continue
		}
		var outgoing []networkingv1.NetworkPolicyIngressRule
		for _, rule := range typed.Spec.Egress {
			outgoing = append(outgoing, networkingv1.NetworkPolicyIngressRule{Ports: rule.Ports, From: rule.To})
		}
		types, selector := typed.Spec.PolicyTypes, labelSelector(&typed.Spec.PodSelector)
		if len(types) == 0 || slices.Contains(types, ingress) {
			n.add(restriction{m, ingress, selector, typed.Spec.Ingress})
		}
		if len(types) == 0 && len(outgoing) > 0 || slices.Contains(types, egress) {
			n.add(restriction{m, egress, selector, outgoing})
		}
	}
	return n
}

func (n network) add(r restriction) {
	n.restrictions[r.by.id.Namespace] = append(n.restrictions[r.by.id.Namespace], r)
}

// closed returns the restrictions of pods in a direction, if none allows a request. Policies are not for pods
// in the network of a node.
func (n network) closed(direction networkingv1.PolicyType, q request) (found []restriction) {
	pods, other := q.to, q.from
	if direction == egress {
		pods, other = q.from, q.to
	}
	if spec := pods.typed(); spec == nil || spec.HostNetwork {
		return nil
	}
	for _, policy := range n.restrictions[pods.by.id.Namespace] {
		if policy.direction != direction || !policy.selector.Matches(pods.labels) ||
			!n.shareCluster(policy.by, pods.by) {
			continue
		}
		found = append(found, policy)
		for _, rule := range policy.rules {
			meets := func(peer networkingv1.NetworkPolicyPeer) bool { return n.meets(policy, peer, other, q.isOutside) }
			if (len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, q.isTo)) &&
				(len(rule.From) == 0 || slices.ContainsFunc(rule.From, meets)) {
				return nil
			}
		}
	}
	return found
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
	isNear, selector := peer.NamespaceSelector == nil, labelSelector(peer.PodSelector)
	switch {
	case peer.IPBlock != nil:
		return true
	case isOutside || pods == nil && !isNear:
		return !isNear
	case pods == nil:
		return n.othersMakePods(policy.by.id.Namespace) || len(n.podsWith(selector, policy.by, n.index)) > 0
	case isNear:
		return pods.by.id.Namespace == policy.by.id.Namespace && selector.Matches(pods.labels)
	}
	for _, m := range n.namespaces(pods.by.id.Namespace) {
		set := labels.Merge(m.Object().GetLabels(), map[string]string{corev1.LabelMetadataName: m.id.Name})
		if !labelSelector(peer.NamespaceSelector).Matches(set) {
			return false
		}
	}
	return peer.PodSelector == nil || selector.Matches(pods.labels)
}

// labelSelector returns a selector that matches nothing if it is invalid, or there is none.
func labelSelector(field *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(field)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// A policyChecker finds requests that the policies of this payload do not allow, and those of the previous one do.
type policyChecker struct {
	*subject
	now, before network
	callers     map[kinds.ID][]caller
	closed      map[restrictionKey]map[string]string // why the requests are needed, by their targets
}

// A restrictionKey is a direction of a NetworkPolicy.
type restrictionKey struct {
	by        *manifest
	direction networkingv1.PolicyType
}

func checkPolicyClosed(s *subject, r *reporter) {
	closed := map[restrictionKey]map[string]string{}
	c := policyChecker{s, s.networkOf(s.index), s.networkOf(s.previous), s.callers(), closed}
	if len(c.now.restrictions) == 0 {
		return
	}
	each(s, kinds.Service, func(m *manifest, service *corev1.Service) {
		pods, _, _ := s.selected(m)
		for _, p := range pods {
			for _, port := range service.Spec.Ports {
				number := p.targetOf(port)
				q := request{to: &p, port: number, before: s.targetBefore(m, p, port), protocol: port.Protocol}
				if p.declares(number) && !c.isClosed(ingress, q, m.id.String()+" leads there") {
					c.checkClients(m, q, port)
				}
			}
		}
	})
	c.checkNames()
	for key, targets := range c.closed {
		field, names := strings.ToLower(string(key.direction)), sortedKeys(targets)
		r.field(key.by, []string{"spec", field}, "its %s allows no requests to %s, and %s", field,
			printable.Few(names, maxParts), targets[names[0]])
	}
}

// checkClients checks the requests of known clients of a Service: Ingresses, and pods that name its host.
func (c policyChecker) checkClients(m *manifest, q request, port corev1.ServicePort) {
	for _, use := range c.graph.Uses[m.id] {
		if use.By.groupKind() == kinds.Ingress && len(c.byKind[kinds.IngressClass]) == 0 {
			outside := q
			outside.isOutside = true
			c.isClosed(ingress, outside, fmt.Sprintf("the controller of %s (%s) sends requests there from another "+
				"namespace", use.By.id, use.By.place()))
		}
	}
	isHeadless := m.text("spec", "clusterIP") == corev1.ClusterIPNone
	for _, caller := range c.callers[m.id] {
		if by := caller.pods.by; by.id != q.to.by.id && (isHeadless || caller.port == 0 || caller.port == port.Port) {
			q.from = &caller.pods
			why := fmt.Sprintf("%s (%s) calls the host %s", by.id, by.place(), caller.host)
			c.isClosed(ingress, q, why)
			c.isClosed(egress, q, why)
		}
	}
}

// checkNames checks that pods whose policies allow requests to other pods can resolve their names.
func (c policyChecker) checkNames() {
	callsPods := func(policy restriction) bool {
		return slices.ContainsFunc(policy.rules, func(rule networkingv1.NetworkPolicyIngressRule) bool {
			return slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
				return peer.PodSelector != nil
			})
		})
	}
	for namespace := range c.now.restrictions {
		for _, p := range c.pods()[namespace] {
			q := request{from: &p, port: 53, before: 53, protocol: corev1.ProtocolUDP}
			other := q
			other.port = 5353 // port of the pods for DNS in OpenShift
			if slices.ContainsFunc(c.now.closed(egress, q), callsPods) && len(c.now.closed(egress, other)) > 0 {
				c.isClosed(egress, q, "its pods can't resolve names without that")
			}
		}
	}
}

// isClosed reports whether policies do not allow a request, and records it if they did before.
func (c policyChecker) isClosed(direction networkingv1.PolicyType, q request, why string) bool {
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
	key := restrictionKey{found[0].by, direction}
	if c.closed[key] == nil {
		c.closed[key] = map[string]string{}
	}
	c.closed[key][target] = cmp.Or(c.closed[key][target], why+": "+found[0].describe())
	return true
}

// oneBefore returns the pods that some pods were in the previous payload; nil if there are none.
func (c policyChecker) oneBefore(pods *podSet) *podSet {
	if pods == nil {
		return nil
	}
	return c.podsBefore(*pods)
}

// describe returns what would have to change of a restriction.
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

// maxParts limits the ports and peers that a message names.
const maxParts = 4
