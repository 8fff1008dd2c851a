package lint

import (
	"cmp"
	"fmt"
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
					r.field(m, []string{"spec", "selector"}, "it selects the pods of %s (%s:%d) as well as those of "+
						"%s, so they get a part of the requests to port %d, although %s: select by a label that they "+
						"do not have", stray.by.id, stray.by.Path, stray.by.Line, home.by.id, port.Port, why)
					break
				}
			}
		}
	})
	for _, m := range s.byKind[kinds.EndpointSlice] {
		id := kinds.NewID(kinds.Service, m.id.Namespace, m.text("metadata", "labels", "kubernetes.io/service-name"))
		for _, service := range s.byID[id] {
			if !m.isTombstone && !service.isTombstone && service.podSelector() != nil && s.shareCluster(m, service) {
				r.field(m, []string{"endpoints"}, "a part of the requests to %s (%s:%d) goes to these addresses, "+
					"beside the pods that it selects: drop them, or its selector", id, service.Path, service.Line)
			}
		}
	}
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
	for _, pods := range s.podsBefore(now) {
		for _, old := range s.previous.byID[m.id] {
			if selector := old.podSelector(); selector != nil && !old.isTombstone && selector.Matches(pods.labels) {
				return true
			}
		}
	}
	return false
}

// sharesImage reports whether two sets of pods have an image in common, whatever its tag.
func (p podSet) sharesImage(other podSet) bool {
	a, b := p.typed(), other.typed()
	return a == nil || b == nil || slices.ContainsFunc(a.Containers, func(container corev1.Container) bool {
		return slices.ContainsFunc(b.Containers, func(other corev1.Container) bool {
			return repositoryOf(container.Image) == repositoryOf(other.Image)
		})
	})
}

// repositoryOf returns an image without its tag and digest.
func repositoryOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if tag := strings.LastIndex(image, ":"); tag > strings.LastIndex(image, "/") {
		return image[:tag]
	}
	return image
}

// checkMovedPort looks for ports that containers no longer have, and that Services, probes or arguments still name.
func checkMovedPort(s *subject, r *reporter) {
	moved := map[*manifest][]int32{}
	for _, sets := range s.pods() {
		for _, pods := range sets {
			for _, old := range s.podsBefore(pods) {
				for _, port := range old.ports() {
					if number := port.ContainerPort; pods.declares(number) {
						reportListening(r, number, old, pods)
					} else if len(pods.ports()) > 0 && !slices.Contains(moved[pods.by], number) {
						moved[pods.by] = append(moved[pods.by], number)
						reportProbes(r, number, old, pods)
					}
				}
			}
		}
	}
	each(s, kinds.Service, func(m *manifest, service *corev1.Service) {
		pods, _, _ := s.selected(m)
		for i, port := range service.Spec.Ports {
			number := cmp.Or(port.TargetPort.IntVal, port.Port)
			if port.TargetPort.Type == intstr.String ||
				slices.ContainsFunc(pods, func(p podSet) bool { return p.declares(number) }) {
				continue
			}
			for _, p := range pods {
				path := []string{"spec", "ports", strconv.Itoa(i)}
				isSame := slices.ContainsFunc(s.podsBefore(p), func(old podSet) bool {
					return old.typed() != nil && p.typed() != nil && p.runsSame(old)
				})
				if had := s.targetBefore(m, p, port); isSame && p.declares(had) && len(moved[p.by]) == 0 {
					r.field(m, path, "requests go to port %d, which %s (%s:%d) does not declare, and before they went "+
						"to its port %d: correct targetPort", number, p.by.id, p.by.Path, p.by.Line, had)
					break
				}
				if slices.Contains(moved[p.by], number) {
					r.field(m, path, "requests go to port %d, which %s (%s:%d) no longer declares: set targetPort to "+
						"one of its ports, by name if it has one", number, p.by.id, p.by.Path, p.by.Line)
					break
				}
			}
		}
	})
}

// reportProbes reports the probes of pods by the number of a port that the pods no longer declare.
func reportProbes(r *reporter, number int32, old, pods podSet) {
	containers, paths := pods.containers("containers", "initContainers")
	for i, container := range containers {
		for _, handler := range handlersOf(container) {
			if handler.port == int64(number) {
				r.field(pods.by, slices.Concat(paths[i], handler.path, []string{"port"}), "the %s asks port %d, which "+
					"the container %s no longer declares (%s:%d does): name a port that it has", handler.path[0],
					number, container["name"], old.by.where(), old.by.Line)
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
			r.field(pods.by, text.path, "%s named port %d in %s:%d, and the container still declares that port: "+
				"change the ports of the container, its probes and its Services too", text.name(), number,
				old.by.where(), old.by.Line)
		}
	}
}

// A loss is a field of a Service by which clients lose it.
type loss struct {
	isLost bool
	field  string // path below spec
	text   string
}

// checkServiceNarrowed looks for Services that serve fewer clients than before.
func checkServiceNarrowed(s *subject, r *reporter) {
	each(s, kinds.Service, func(m *manifest, now *corev1.Service) {
		for _, old := range s.previous.byID[m.id] {
			before := convert[corev1.Service](old.Object().Object)
			if before == nil || old.isTombstone || !s.shareCluster(old, m) {
				continue
			}
			for _, loss := range s.lossesOf(m, before.Spec, now.Spec) {
				if loss.isLost {
					r.field(m, strings.Split("spec."+loss.field, "."), "%s:%d %s", old.where(), old.Line, loss.text)
				}
			}
			s.reportLostPorts(r, old, m, before.Spec.Ports, now.Spec.Ports)
			s.reportGap(r, old, m)
		}
	})
	s.podPairs(func(old, now podSet) { s.reportHostPort(r, old, now) })
}

// reportHostPort reports pods on each node that no longer have a port of their nodes, if no Service has one for them.
func (s *subject) reportHostPort(r *reporter, old, now podSet) {
	isOutside := slices.ContainsFunc(s.byKind[kinds.Service], func(m *manifest) bool {
		isOpen := slices.Contains([]string{"NodePort", "LoadBalancer"}, m.text("spec", "type"))
		selector := m.podSelector()
		return isOpen && selector != nil && selector.Matches(now.labels) && m.id.Namespace == now.by.id.Namespace
	})
	hasHostPort := func(port corev1.ContainerPort) bool { return port.HostPort > 0 }
	if now.by.kind.Kind != "DaemonSet" || now.typed().HostNetwork || isOutside ||
		slices.ContainsFunc(now.ports(), hasHostPort) {
		return
	}
	if i := slices.IndexFunc(old.ports(), hasHostPort); i >= 0 && now.declares(old.ports()[i].ContainerPort) {
		now.field(r, "containers", "%s:%d has hostPort %d, by which clients reach the pod of a node: keep it",
			old.by.where(), old.by.Line, old.ports()[i].HostPort)
	}
}

// lossesOf returns the losses of a Service by its own fields.
func (s *subject) lossesOf(m *manifest, before, now corev1.ServiceSpec) []loss {
	pods, _, _ := s.selected(m)
	isEverywhere := slices.ContainsFunc(pods, func(p podSet) bool { return p.by.kind.Kind == "DaemonSet" })
	isExternal := now.Type == corev1.ServiceTypeExternalName
	isOutside := now.Type == corev1.ServiceTypeLoadBalancer || now.Type == corev1.ServiceTypeNodePort
	wasBalanced := before.Type == corev1.ServiceTypeLoadBalancer
	isNarrow := len(before.LoadBalancerSourceRanges) == 0
	for _, had := range before.LoadBalancerSourceRanges {
		isNarrow = isNarrow || !slices.Contains(now.LoadBalancerSourceRanges, had)
	}
	wasOutside := wasBalanced && now.Type != before.Type || before.Type == corev1.ServiceTypeNodePort && !isOutside
	return []loss{
		{isExternal && before.Type != now.Type, "type", "leads to pods, and with type ExternalName clients get " +
			"another host: give that a Service of its own"},
		{!isExternal && wasOutside, "type", fmt.Sprintf("has type %s, by which clients outside of the cluster reach "+
			"it: keep the type", before.Type)},
		{isOutside && before.LoadBalancerIP != "" && before.LoadBalancerIP != now.LoadBalancerIP, "loadBalancerIP",
			"has the loadBalancerIP " + before.LoadBalancerIP + ", which clients still use: keep it"},
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

// isLocal reports whether only the pods of its own node answer a client.
func isLocal(spec corev1.ServiceSpec) bool {
	return spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
}

// reportLostPorts reports the ports that a Service no longer has. Clients of a headless Service use those of the pods.
func (s *subject) reportLostPorts(r *reporter, old, m *manifest, before, now []corev1.ServicePort) {
	isKept := old.text("spec", "clusterIP") == corev1.ClusterIPNone || m.text("spec", "type") == "ExternalName"
	indexOf := func(ports []corev1.ServicePort, port corev1.ServicePort) int {
		return slices.IndexFunc(ports, func(other corev1.ServicePort) bool {
			return other.Port == port.Port && isSameProtocol(other.Protocol, port.Protocol)
		})
	}
	for _, port := range before {
		i := indexOf(now, port)
		if i >= 0 {
			if other := now[i].NodePort; other > 0 && port.NodePort > 0 && other != port.NodePort {
				r.field(m, []string{"spec", "ports", strconv.Itoa(i), "nodePort"}, "%s:%d has nodePort %d, which "+
					"clients outside of the cluster still use: keep it", old.where(), old.Line, port.NodePort)
			}
			continue
		}
		called := s.portsCalled(m.id)
		haveMoved := !slices.Contains(called, port.Port) &&
			slices.ContainsFunc(now, func(other corev1.ServicePort) bool {
				return slices.Contains(called, other.Port) && indexOf(before, other) < 0
			})
		report, why := r.field, "which clients still use: keep it beside the new ports"
		if haveMoved {
			report, why = r.note, "and its clients in the payload use another port now: some fail until all are updated"
		}
		if !isKept {
			report(m, []string{"spec", "ports"}, "%s:%d has port %d (%s), %s", old.where(), old.Line, port.Port,
				cmp.Or(port.Protocol, corev1.ProtocolTCP), why)
		}
	}
}

// portsCalled returns the ports of a Service that objects and texts of the payload name by their numbers.
func (s *subject) portsCalled(service kinds.ID) (found []int32) {
	for _, c := range s.calls() {
		if c.service == service {
			found = append(found, c.port)
		}
	}
	for _, use := range s.graph.Uses[service] {
		for _, called := range use.By.calledPorts() {
			if number, isNumber := called.port.(int64); isNumber && called.service == service {
				found = append(found, int32(number)) //nolint:gosec // a port
			}
		}
	}
	return found
}

// reportGap reports a Service whose selector changes after the labels of its pods: in between, it selects none. The
// rule no-endpoints-yet reports those that change before.
func (s *subject) reportGap(r *reporter, old, m *manifest) {
	former, pods := old.podSelector(), s.podsWith(m.podSelector(), m, s.index)
	if len(pods) > 0 && before(pods[0].by, m) && len(s.podsWith(former, m, s.index)) == 0 &&
		len(s.podsWith(former, old, s.previous)) > 0 {
		workload := pods[0].by
		r.field(m, []string{"spec", "selector"}, "the update changes it after %s (%s:%d), whose new pods do not have "+
			"the labels %s: the Service loses its endpoints during the rollout: keep the labels for a release",
			workload.id, workload.Path, workload.Line, former)
	}
}
