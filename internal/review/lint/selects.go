package lint

import (
	"slices"
	"strconv"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// These rules are about pods of the payload: which objects select them, and which ports they have.

// selectingRules are about objects that select pods, and the ports by which pods are reached.
func selectingRules() []Rule {
	return []Rule{
		{"selects-no-pod", Warning, nothing, checkSelectsNoPod},
		{"missing-port", Error, nothing, checkMissingPort},
	}
}

func checkSelectsNoPod(s *subject, r *reporter) {
	for _, m := range s.normal {
		if kinds.PodSelector(m.groupKind()) == nil {
			continue
		}
		if pods, selector, areAll := s.selected(m); selector != nil && areAll && len(pods) == 0 {
			r.field(m, kinds.PodSelector(m.groupKind()),
				"it selects no pod of the payload: no template in %s has the labels %s", m.id.Namespace, selector)
		}
	}
}

func checkMissingPort(s *subject, r *reporter) {
	for _, m := range s.byKind[kinds.Service] {
		checkTargetPorts(s, m, r)
	}
	for _, sets := range s.pods() {
		for _, pods := range sets {
			checkProbePorts(pods, r)
		}
	}
	for _, m := range s.normal {
		for _, called := range m.calledPorts() {
			checkBackendPort(s, m, called, r)
		}
	}
}

// checkTargetPorts looks for ports of a Service that no selected pod has by that name.
func checkTargetPorts(s *subject, m *manifest, r *reporter) {
	pods, _, areAll := s.selected(m)
	if m.isTombstone || !areAll || len(pods) == 0 {
		return
	}
	ports, _ := m.get("spec", "ports").([]any)
	for i, port := range ports {
		fields, _ := port.(map[string]any)
		name, isName := fields["targetPort"].(string)
		if isName && !slices.ContainsFunc(pods, func(p podSet) bool { return p.hasPort(name) }) {
			r.field(m, []string{"spec", "ports", strconv.Itoa(i), "targetPort"},
				"no container of %s (%s:%d) has a port named %s", pods[0].by.id, pods[0].by.Path,
				pods[0].by.Line, name)
		}
	}
}

// checkProbePorts looks for probes and handlers of containers that name a port which the container does not have.
func checkProbePorts(pods podSet, r *reporter) {
	containers, paths := pods.containers("containers", "initContainers")
	for i, container := range containers {
		for _, handler := range handlersOf(container) {
			if name, isName := handler.port.(string); isName && !hasPort(container, name) {
				r.field(pods.by, slices.Concat(paths[i], handler.path, []string{"port"}),
					"the container %s has no port named %s", container["name"], name)
			}
		}
	}
}

// A handler is a probe or a handler of a container that sends requests to a port.
type handler struct {
	path []string
	port any // its name or number
}

// handlersOf returns the handlers of a container.
func handlersOf(container map[string]any) (found []handler) {
	for _, name := range []string{"readinessProbe.httpGet", "readinessProbe.tcpSocket", "readinessProbe.grpc",
		"livenessProbe.httpGet", "livenessProbe.tcpSocket", "livenessProbe.grpc", "startupProbe.httpGet",
		"startupProbe.tcpSocket", "startupProbe.grpc", "lifecycle.postStart.httpGet", "lifecycle.preStop.httpGet"} {
		path := strings.Split(name, ".")
		if port := fieldAt(container, append(slices.Clone(path), "port")); port != nil {
			found = append(found, handler{path, port})
		}
	}
	return found
}

// A calledPort is a port of a Service to which an object sends requests.
type calledPort struct {
	path    []string
	service kinds.ID
	port    any // its name or number
}

// calledPorts returns the ports of Services that an Ingress, a webhook, a definition or an APIService sends requests
// to.
func (m *manifest) calledPorts() (found []calledPort) {
	for _, reference := range m.references {
		if reference.To.GroupKind() != kinds.Service || len(reference.Path) < 2 {
			continue
		}
		path := reference.Path[:len(reference.Path)-1]
		fields, _ := fieldAt(m.Object().Object, path).(map[string]any)
		switch {
		case m.kind.Kind == "Ingress":
			port, _ := fields["port"].(map[string]any)
			for _, key := range []string{"name", "number"} {
				if port[key] != nil {
					found = append(found, calledPort{append(slices.Clone(path), "port"), reference.To, port[key]})
				}
			}
		case m.kind.Kind == "StatefulSet" || m.kind.Kind == "Route":
		case fields["port"] != nil:
			found = append(found, calledPort{append(slices.Clone(path), "port"), reference.To, fields["port"]})
		default:
			found = append(found, calledPort{path, reference.To, int64(443)})
		}
	}
	return found
}

// fieldAt returns the value at a path of keys and indexes; nil if there is none.
func fieldAt(value any, path []string) any {
	for _, key := range path {
		switch inner := value.(type) {
		case map[string]any:
			value = inner[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(inner) {
				return nil
			}
			value = inner[i]
		default:
			return nil
		}
	}
	return value
}

// checkBackendPort looks for a port that no Service of that name in the payload has.
func checkBackendPort(s *subject, m *manifest, called calledPort, r *reporter) {
	services := slices.DeleteFunc(slices.Clone(s.byID[called.service]), func(other *manifest) bool {
		return other.isTombstone || !s.shareCluster(m, other)
	})
	if len(services) == 0 || slices.ContainsFunc(services, func(service *manifest) bool {
		return service.servesPort(called.port)
	}) {
		return
	}
	r.field(m, called.path, "%s (%s:%d) has no port %v", called.service, services[0].Path, services[0].Line,
		called.port)
}

// servesPort reports whether a Service has a port of a name or number, or is the name of something else.
func (m *manifest) servesPort(port any) bool {
	ports, _ := m.get("spec", "ports").([]any)
	return m.text("spec", "type") == "ExternalName" || slices.ContainsFunc(ports, func(item any) bool {
		fields, _ := item.(map[string]any)
		return fields["name"] == port || fields["port"] == port
	})
}
