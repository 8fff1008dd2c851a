package lint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// These rules are about Services, and the pods that they lead to.

// reachingRules are about Services, policies and Ingresses by which requests do not arrive.
func reachingRules() []Rule {
	return []Rule{
		{"shared-service", Warning, nothing, checkSharedService},
		{"moved-port", Warning, needsPrevious, checkMovedPort},
		{"service-narrowed", Warning, needsPrevious, checkServiceNarrowed},
		{"unreachable-host", Warning, nothing, checkUnreachableHost},
		{"policy-closed", Warning, needsPrevious, checkPolicyClosed},
		{"lost-route", Warning, needsPrevious, checkLostRoute},
		{"two-ingresses", Warning, nothing, checkTwoIngresses},
	}
}

// checkSharedService looks for Services that lead to others than the pods that they are for.
func checkSharedService(s *subject, r *reporter) {
	each(s, kinds.Service, func(m *manifest, service *corev1.Service) {
		pods, _, _ := s.selected(m)
		for _, stray := range pods {
			for _, port := range service.Spec.Ports {
				if home, why := s.homeOf(m, port, stray, pods); why != "" {
					r.field(m, []string{"spec", "selector"}, "it selects the pods of %s (%s) as well as those of %s, "+
						"so they get a part of the requests to port %d, although %s: select by a label that they do "+
						"not have", stray.by.id, stray.by.place(), home.by.id, port.Port, why)
					break
				}
			}
		}
	})
}

// homeOf returns the pods that a port of a Service is for, if others that it selects seem not to answer there, and why.
func (s *subject) homeOf(m *manifest, port corev1.ServicePort, stray podSet, pods []podSet) (home podSet, why string) {
	number := stray.targetOf(port)
	for _, home := range pods {
		isOther := home.by.id != stray.by.id && s.shareCluster(home.by, stray.by)
		if number == 0 || !isOther || !home.declares(home.targetOf(port)) {
			continue
		}
		isNew := s.wasSelected(m, home) && !s.wasSelected(m, stray)
		isJob := stray.by.kind.Kind == "Job" || stray.by.kind.Kind == "CronJob"
		switch {
		case !stray.declares(number) && (isNew || isJob || len(stray.ports()) > 0):
			return home, fmt.Sprintf("they do not declare port %d", number)
		case isNew && !stray.sharesImage(home):
			return home, "they have other images"
		}
	}
	return home, ""
}

// wasSelected reports whether a Service of the previous payload selects the pods that a workload had there.
func (s *subject) wasSelected(m *manifest, now podSet) bool {
	old, before := s.previousOf(m), s.podsBefore(now)
	if old == nil || before == nil {
		return false
	}
	selector := old.podSelector()
	return selector != nil && selector.Matches(before.labels)
}

// sharesImage reports whether two sets of pods have an image in common, whatever its version.
func (p podSet) sharesImage(other podSet) bool {
	return slices.ContainsFunc(p.images(), func(a containerImage) bool {
		return slices.ContainsFunc(other.images(), func(b containerImage) bool {
			return parseImage(a.name).repository == parseImage(b.name).repository
		})
	})
}

// checkMovedPort looks for ports that containers no longer declare and that Services or probes still name, and for
// ports that they declare and no longer listen on.
func checkMovedPort(s *subject, r *reporter) {
	s.podPairs(func(old, now podSet) {
		for _, port := range old.ports() {
			if now.declares(port.ContainerPort) {
				reportListening(r, port.ContainerPort, old, now)
			} else if len(now.ports()) > 0 {
				reportProbes(r, port.ContainerPort, old, now)
			}
		}
	})
	each(s, kinds.Service, func(m *manifest, service *corev1.Service) {
		pods, _, _ := s.selected(m)
		for i, port := range service.Spec.Ports {
			number := cmp.Or(port.TargetPort.IntVal, port.Port)
			isDeclared := slices.ContainsFunc(pods, func(p podSet) bool { return p.declares(number) })
			if port.TargetPort.Type == intstr.String || isDeclared {
				continue
			}
			for _, p := range pods {
				if s.losesPort(m, p, port, number) {
					r.field(m, []string{"spec", "ports", strconv.Itoa(i)}, "requests go to port %d, which %s (%s) "+
						"does not declare, and in the previous release they went to a port that it declared: set "+
						"targetPort to one of its ports, by name if it has one", number, p.by.id, p.by.place())
					break
				}
			}
		}
	})
}

// losesPort reports whether requests to a port of a Service went to a port that pods declared, and now go to a number
// that they do not declare. Other programs may have ports that they do not declare.
func (s *subject) losesPort(m *manifest, now podSet, port corev1.ServicePort, number int32) bool {
	old, had := s.podsBefore(now), s.targetBefore(m, now, port)
	if old == nil || !old.declares(had) || len(now.ports()) == 0 {
		return false
	}
	return number == had || now.declares(had) && now.runsSame(*old)
}

// targetBefore returns the port of pods to which a port of a Service led in the previous payload; 0 if there is none.
func (s *subject) targetBefore(m *manifest, now podSet, port corev1.ServicePort) int32 {
	if !s.wasSelected(m, now) {
		return 0
	}
	service := convert[corev1.Service](s.previousOf(m).Object().Object)
	if service == nil {
		return 0
	}
	for _, old := range service.Spec.Ports {
		if old.Port == port.Port {
			return s.podsBefore(now).targetOf(old)
		}
	}
	return 0
}

// reportProbes reports the probes of pods by the number of a port that the pods no longer declare.
func reportProbes(r *reporter, number int32, old, pods podSet) {
	containers, paths := pods.containers("containers", "initContainers")
	for i, container := range containers {
		for _, handler := range handlersOf(container) {
			if handler.port == int64(number) {
				r.field(pods.by, slices.Concat(paths[i], handler.path, []string{"port"}), "the %s asks port %d, which "+
					"the container %s no longer declares (%s does): name a port that it has", handler.path[0],
					number, container["name"], old.by.place())
			}
		}
	}
}

// reportListening reports variables and arguments of pods that no longer name a port which the pods still declare.
func reportListening(r *reporter, number int32, old, pods podSet) {
	before, now := map[string]text{}, pods.texts()
	for _, text := range old.texts() {
		before[text.key] = text
	}
	if slices.ContainsFunc(now, func(text text) bool { return text.names(number) }) {
		return
	}
	for _, text := range now {
		if had, isKnown := before[text.key]; isKnown && had.names(number) && anyPort.MatchString(text.value) {
			r.field(pods.by, text.path, "%s named port %d in %s, and the container still declares that port: change "+
				"the ports of the container, its probes and its Services too", text.described(), number, old.by.place())
		}
	}
}

// A loss is a field of a Service by which clients lose it.
type loss struct {
	isLost bool
	field  string // below spec
	text   string
}

// checkServiceNarrowed looks for Services that serve fewer clients than before.
func checkServiceNarrowed(s *subject, r *reporter) {
	s.pairs(func(old, m *manifest) {
		before, now := convert[corev1.Service](old.Object().Object), convert[corev1.Service](m.Object().Object)
		if m.groupKind() != kinds.Service || before == nil || now == nil {
			return
		}
		for _, loss := range s.lossesOf(m, before.Spec, now.Spec) {
			if loss.isLost {
				r.field(m, []string{"spec", loss.field}, "%s %s", old.place(), loss.text)
			}
		}
		s.reportLostPorts(r, old, m, before.Spec.Ports, now.Spec.Ports)
	})
}

// lossesOf returns the losses of a Service by its own fields.
func (s *subject) lossesOf(m *manifest, before, now corev1.ServiceSpec) []loss {
	pods, _, _ := s.selected(m)
	isEverywhere := slices.ContainsFunc(pods, func(p podSet) bool { return p.by.kind.Kind == "DaemonSet" })
	isExternal := now.Type == corev1.ServiceTypeExternalName
	isOutside := now.Type == corev1.ServiceTypeLoadBalancer || now.Type == corev1.ServiceTypeNodePort
	wasBalanced := before.Type == corev1.ServiceTypeLoadBalancer
	wasOutside := wasBalanced && now.Type != before.Type || before.Type == corev1.ServiceTypeNodePort && !isOutside
	isShut := func(network string) bool { return !slices.Contains(now.LoadBalancerSourceRanges, network) }
	ranges := before.LoadBalancerSourceRanges
	isNarrow := len(ranges) == 0 || slices.ContainsFunc(ranges, isShut)
	return []loss{
		{isExternal && before.Type != now.Type && !s.isAlias(m, before, now), "type", "leads to pods, and with type " +
			"ExternalName clients get another host: give that a Service of its own"},
		{!isExternal && wasOutside, "type", fmt.Sprintf("has type %s, by which clients outside of the cluster reach "+
			"it: keep the type", before.Type)},
		{!isExternal && len(before.Selector) > 0 && len(now.Selector) == 0, "selector", "has a selector: without " +
			"spec.selector, the addresses of today's pods stay, even when these pods no longer exist: keep it"},
		{isNarrow && len(now.LoadBalancerSourceRanges) > 0, "loadBalancerSourceRanges", "lets clients in that " +
			"are not in loadBalancerSourceRanges now: add their ranges"},
		{isLocal(now) && !isLocal(before) && !isEverywhere, "internalTrafficPolicy", "has no internalTrafficPolicy " +
			"Local: with it, clients on nodes without one of its pods get no answer: set Cluster"},
		{before.PublishNotReadyAddresses && !now.PublishNotReadyAddresses, "publishNotReadyAddresses", "has " +
			"publishNotReadyAddresses: without it, pods that start do not find each other: keep it"},
	}
}

// isAlias reports whether a Service is now a name of another one, with the pods and ports that it had.
func (s *subject) isAlias(m *manifest, before, now corev1.ServiceSpec) bool {
	host := strings.TrimSuffix(now.ExternalName, ".cluster.local")
	name, isInside := strings.CutSuffix(host, "."+m.id.Namespace+".svc")
	target := s.present(kinds.NewID(kinds.Service, m.id.Namespace, name), m)
	if !isInside || target == nil {
		return false
	}
	typed := convert[corev1.Service](target.Object().Object)
	return typed != nil && maps.Equal(typed.Spec.Selector, before.Selector) &&
		!slices.ContainsFunc(before.Ports, func(port corev1.ServicePort) bool {
			return !target.servesPort(int64(port.Port))
		})
}

// isLocal reports whether only the pods of its own node answer a client.
func isLocal(spec corev1.ServiceSpec) bool {
	return spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
}

// reportLostPorts reports the ports that a Service no longer has. Clients of a headless Service use those of the pods.
func (s *subject) reportLostPorts(r *reporter, old, m *manifest, before, now []corev1.ServicePort) {
	if old.text("spec", "clusterIP") == corev1.ClusterIPNone || m.text("spec", "type") == "ExternalName" {
		return
	}
	indexOf := func(ports []corev1.ServicePort, port corev1.ServicePort) int {
		return slices.IndexFunc(ports, func(other corev1.ServicePort) bool {
			return other.Port == port.Port && isSameProtocol(other.Protocol, port.Protocol)
		})
	}
	called := s.portsCalled(m.id)
	haveMoved := slices.ContainsFunc(now, func(port corev1.ServicePort) bool {
		return called[port.Port] && indexOf(before, port) < 0
	})
	for _, port := range before {
		i := indexOf(now, port)
		if i < 0 && (called[port.Port] || !haveMoved) {
			r.field(m, []string{"spec", "ports"}, "%s has port %d (%s), which clients still use: keep it beside the "+
				"new ports", old.place(), port.Port, cmp.Or(port.Protocol, corev1.ProtocolTCP))
		} else if i >= 0 && now[i].NodePort > 0 && port.NodePort > 0 && now[i].NodePort != port.NodePort {
			r.field(m, []string{"spec", "ports", strconv.Itoa(i), "nodePort"}, "%s has nodePort %d, which clients "+
				"outside of the cluster still use: keep it", old.place(), port.NodePort)
		}
	}
}

// portsCalled returns the ports of a Service that objects and texts of the payload name by their numbers.
func (s *subject) portsCalled(service kinds.ID) map[int32]bool {
	found := map[int32]bool{}
	for _, c := range s.calls() {
		found[c.port] = found[c.port] || c.service == service
	}
	for _, use := range s.graph.Uses[service] {
		for _, called := range use.By.calledPorts() {
			if number, isNumber := called.port.(int64); isNumber && called.service == service {
				found[int32(number)] = true //nolint:gosec // a port
			}
		}
	}
	return found
}
