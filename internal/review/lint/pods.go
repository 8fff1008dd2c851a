package lint

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// The pods of a payload, and the objects that select them.

// A podSet is the pods of a workload.
type podSet struct {
	by     *manifest
	labels labels.Set
	path   []string // path of the spec
	spec   map[string]any
	typed  func() *corev1.PodSpec // nil if the spec is invalid
}

// findPods returns the pods of a payload's workloads, by namespace.
func (ix *index) findPods() map[string][]podSet {
	found := map[string][]podSet{}
	for _, m := range ix.normal {
		if pods, hasPods := newPodSet(m); hasPods {
			found[m.id.Namespace] = append(found[m.id.Namespace], pods)
		}
	}
	return found
}

// newPodSet returns the pods of a workload, and whether it has any.
func newPodSet(m *manifest) (pods podSet, hasPods bool) {
	path := kinds.PodSpec(m.groupKind())
	spec, hasPods := m.get(path...).(map[string]any)
	if path == nil || !hasPods {
		return podSet{}, false
	}
	typed := sync.OnceValue(func() *corev1.PodSpec { return convert[corev1.PodSpec](spec) })
	return podSet{m, kinds.PodLabels(m.Object()), path, spec, typed}, true
}

// eachPods calls check for the valid pods of each workload, in order.
func (s *subject) eachPods(check func(podSet, *corev1.PodSpec)) {
	for _, namespace := range sortedKeys(s.pods()) {
		for _, pods := range s.pods()[namespace] {
			if spec := pods.typed(); spec != nil {
				check(pods, spec)
			}
		}
	}
}

// podPairs calls report for the pods of each changed workload, and those that it has in the previous payload.
func (s *subject) podPairs(report func(old, now podSet)) {
	s.pairs(func(old, m *manifest) {
		before, hadPods := newPodSet(old)
		now, hasPods := newPodSet(m)
		if hadPods && hasPods && before.typed() != nil && now.typed() != nil {
			report(before, now)
		}
	})
}

// field reports a finding about a field of pods, whose keys are separated by |.
func (p podSet) field(r *reporter, field, format string, args ...any) {
	r.field(p.by, slices.Concat(p.path, strings.Split(field, "|")), format, args...)
}

// restarts reports whether the containers of pods run for ever.
func (p podSet) restarts() bool {
	return slices.Contains([]string{"Deployment", "DaemonSet", "StatefulSet", "ReplicaSet"}, p.by.kind.Kind)
}

// hasClaims reports whether pods have volumes of claims.
func (p podSet) hasClaims() bool {
	return p.by.get("spec", "volumeClaimTemplates") != nil ||
		slices.ContainsFunc(p.typed().Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
}

// containers returns the containers of pods, with their paths.
func (p podSet) containers(lists ...string) (containers []map[string]any, paths [][]string) {
	for _, list := range lists {
		items, _ := p.spec[list].([]any)
		for i, item := range items {
			if container, isMapping := item.(map[string]any); isMapping {
				containers = append(containers, container)
				paths = append(paths, append(slices.Clone(p.path), list, strconv.Itoa(i)))
			}
		}
	}
	return containers, paths
}

// hasPort reports whether a container has a port of a name.
func hasPort(container map[string]any, name string) bool {
	ports, _ := container["ports"].([]any)
	return slices.ContainsFunc(ports, func(port any) bool {
		fields, _ := port.(map[string]any)
		return fields["name"] == name
	})
}

// hasPort reports whether any container of pods has a port of a name.
func (p podSet) hasPort(name string) bool {
	containers, _ := p.containers("containers", "initContainers")
	return slices.ContainsFunc(containers, func(container map[string]any) bool { return hasPort(container, name) })
}

// podSelector returns the selector of an object; nil if it has none, or selects all pods.
func (m *manifest) podSelector() labels.Selector { return kinds.SelectorOf(m.Object()) }

// convert returns the typed value of a field; nil if it has another type, or does not exist.
func convert[T any](field any) *T {
	fields, isMapping := field.(map[string]any)
	typed := new(T)
	if !isMapping || runtime.DefaultUnstructuredConverter.FromUnstructured(fields, typed) != nil {
		return nil
	}
	return typed
}

// each calls check for each object of a kind in this payload, as a typed value.
func each[T any](s *subject, kind schema.GroupKind, check func(*manifest, *T)) {
	for _, m := range s.byKind[kind] {
		if typed := convert[T](m.Object().Object); typed != nil && !m.isTombstone {
			check(m, typed)
		}
	}
}

// selected returns the pods that an object selects, and whether it is certain that no others exist: only pods of the
// payload may have all the labels by which one of its workloads knows its own.
func (s *subject) selected(m *manifest) (found []podSet, selector labels.Selector, areAll bool) {
	selector = m.podSelector()
	if selector == nil {
		return nil, nil, false
	}
	found = s.podsWith(selector, m, s.index)
	isOwn := slices.ContainsFunc(found, func(pods podSet) bool {
		own, _ := pods.by.get("spec", "selector", "matchLabels").(map[string]any)
		for key, value := range own {
			if exact, isExact := selector.RequiresExactMatch(key); !isExact || exact != value {
				return false
			}
		}
		return len(own) > 0
	})
	return found, selector, isOwn || !s.othersMakePods(m.id.Namespace)
}

// podsWith returns the pods of a payload that a selector of a manifest matches.
func (s *subject) podsWith(selector labels.Selector, m *manifest, x *index) (found []podSet) {
	for _, pods := range x.pods()[m.id.Namespace] {
		if selector != nil && selector.Matches(pods.labels) && s.shareCluster(m, pods.by) {
			found = append(found, pods)
		}
	}
	return found
}

// podsBefore returns the pods that a workload had in the previous payload; nil if there are none.
func (s *subject) podsBefore(now podSet) *podSet {
	old := s.previousOf(now.by)
	if old == nil {
		return nil
	}
	sets := s.previous.pods()[old.id.Namespace]
	if i := slices.IndexFunc(sets, func(p podSet) bool { return p.by == old }); i >= 0 {
		return &sets[i]
	}
	return nil
}

// A podContainer is a container of pods, with the path of its field, whose keys are separated by |.
type podContainer struct {
	corev1.Container
	field  string
	isInit bool
}

// typedContainers returns the containers of pods; the pods are valid.
func (p podSet) typedContainers() (found []podContainer) {
	for i, container := range p.typed().InitContainers {
		found = append(found, podContainer{container, "initContainers|" + strconv.Itoa(i), true})
	}
	for i, container := range p.typed().Containers {
		found = append(found, podContainer{container, "containers|" + strconv.Itoa(i), false})
	}
	return found
}

// containerPairs calls check for each container that pods have, and had in the previous payload.
func containerPairs(old, now podSet, check func(before, c podContainer)) {
	for _, c := range now.typedContainers() {
		for _, before := range old.typedContainers() {
			if before.Name == c.Name {
				check(before, c)
			}
		}
	}
}

// ports returns the ports that the containers of pods declare.
func (p podSet) ports() (found []corev1.ContainerPort) {
	if spec := p.typed(); spec != nil {
		for _, container := range slices.Concat(spec.Containers, spec.InitContainers) {
			found = append(found, container.Ports...)
		}
	}
	return found
}

// declares reports whether a container of pods declares a port.
func (p podSet) declares(number int32) bool {
	return slices.ContainsFunc(p.ports(), func(port corev1.ContainerPort) bool { return port.ContainerPort == number })
}

// portOf returns the number of a port with a name or a number; 0 if the pods have no port of the name.
func (p podSet) portOf(port intstr.IntOrString, protocol corev1.Protocol) int32 {
	for _, declared := range p.ports() {
		if port.Type == intstr.String && declared.Name == port.StrVal && isSameProtocol(declared.Protocol, protocol) {
			return declared.ContainerPort
		}
	}
	return port.IntVal
}

// targetOf returns the port of pods to which a port of a Service leads; 0 if the pods have none of its name.
func (p podSet) targetOf(port corev1.ServicePort) int32 {
	if port.TargetPort == (intstr.IntOrString{}) {
		return port.Port
	}
	return p.portOf(port.TargetPort, port.Protocol)
}

// isSameProtocol compares two protocols, of which TCP is the default.
func isSameProtocol(a, b corev1.Protocol) bool {
	return cmp.Or(a, corev1.ProtocolTCP) == cmp.Or(b, corev1.ProtocolTCP)
}

// othersMakePods reports whether others than the payload may create pods in a namespace: the namespace is not the
// payload's, a program of the payload may create workloads in it, or a controller may do so for its custom resources.
func (s *subject) othersMakePods(namespace string) bool {
	creators := s.creators()
	for _, kind := range []schema.GroupKind{kinds.Pod, kinds.Deployment,
		kinds.DaemonSet, kinds.StatefulSet} {
		if creators.creatorOf(kinds.NewID(kind, namespace, "")) != "" {
			return true
		}
	}
	return s.hasForeignKinds(namespace)
}

// hasForeignKinds reports whether a namespace has custom resources of others, whose controllers may create objects.
func (s *subject) hasForeignKinds(namespace string) bool {
	return slices.ContainsFunc(s.inside[namespace], func(m *manifest) bool {
		return !kinds.Scheme().Recognizes(m.kind) && len(s.defines[m.groupKind()]) == 0
	})
}
