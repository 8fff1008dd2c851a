package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A traffic finds where the requests of a release go.
type traffic struct {
	objects map[kinds.ID]*payload.Manifest // without tombstones
	pods    graph.PodIndex[*payload.Manifest]
	hosts   map[string]bool // hosts of Ingresses and routes; "" if one of them is for all hosts
}

func trafficOf(manifests []*payload.Manifest) traffic {
	t := traffic{map[kinds.ID]*payload.Manifest{}, graph.PodIndex[*payload.Manifest]{}, map[string]bool{}}
	for _, m := range manifests {
		if m.IsTombstone() {
			continue
		}
		t.objects[m.ID()] = m
		if kinds.IsWorkload(m.ID().GroupKind()) && replicasOf(m.Object().Object) > 0 {
			t.pods.Add(m.Object(), m)
		}
		for _, host := range hostsOf(m) {
			t.hosts[host] = true
		}
	}
	return t
}

// reached returns the workloads whose pods a Service selects.
func (t traffic) reached(service *payload.Manifest) (found []*payload.Manifest) {
	for _, workload := range t.pods.Candidates(service.Object()) {
		if graph.Selects(service.Object(), workload.Object()) {
			found = append(found, workload)
		}
	}
	return found
}

// serves reports whether an Ingress or a route is for a host.
func (t traffic) serves(host string) bool {
	_, parent, _ := strings.Cut(host, ".")
	return host == "" || t.hosts[host] || t.hosts[""] || t.hosts["*."+parent]
}

// hostsOf returns the hosts of an Ingress or a route; "" stands for all hosts.
func hostsOf(m *payload.Manifest) (hosts []string) {
	switch object := m.Object().Object; m.ID().GroupKind() {
	case kinds.Ingress:
		for _, rule := range items(object, "spec", "rules") {
			host, _ := rule["host"].(string)
			hosts = append(hosts, host)
		}
		if _, hasDefault, _ := unstructured.NestedFieldNoCopy(object, "spec", "defaultBackend"); hasDefault {
			hosts = append(hosts, "")
		}
	case kinds.Route:
		host, _, _ := unstructured.NestedString(object, "spec", "host")
		hosts = append(hosts, host)
	case kinds.HTTPRoute, kinds.GRPCRoute, kinds.TLSRoute:
		if hosts, _, _ = unstructured.NestedStringSlice(object, "spec", "hostnames"); len(hosts) == 0 {
			hosts = []string{""}
		}
	}
	return hosts
}

// items returns the mappings in a list.
func items(object map[string]any, path ...string) (found []map[string]any) {
	value, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	list, _ := value.([]any)
	for _, item := range list {
		if fields, isMapping := item.(map[string]any); isMapping {
			found = append(found, fields)
		}
	}
	return found
}

// unreachable returns warnings of Services that reached pods before the update and reach none after it, or not at the
// same port, although the Service or the pods stay; and of Ingresses and routes with hosts that nothing has any more.
func (c *comparer) unreachable(before, after []*payload.Manifest) (found []Warning) {
	old, now := trafficOf(before), trafficOf(after)
	for _, m := range before {
		id := m.ID()
		add := func(text string) { found = append(found, Warning{Unreachable, id, text}) }
		successor, target := now.objects[id], c.to.manifests[storedID(m)]
		isDeleted := target != nil && target.IsTombstone()
		if old.objects[id] != m || successor == nil && !isDeleted {
			continue
		}
		for _, host := range hostsOf(m) {
			if !now.serves(host) {
				add(fmt.Sprintf("no Ingress or route of the new release has the host %s, which it had", host))
			}
		}
		if id.GroupKind() != kinds.Service {
			continue
		}
		reached := old.reached(m)
		stays := slices.IndexFunc(reached, func(w *payload.Manifest) bool { return now.objects[w.ID()] != nil })
		switch {
		case isDeleted && stays >= 0:
			add(fmt.Sprintf("it is deleted, and %s, which it reached, stays", reached[stays].ID()))
		case !isDeleted && len(reached) > 0:
			if text := whyLost(m, successor, reached, now.reached(successor)); text != "" {
				add(text)
			}
		}
	}
	return found
}

// whyLost returns why requests to a Service no longer arrive at the pods of workloads; "" if they do, or if other
// objects say where they go.
func whyLost(before, after *payload.Manifest, old, now []*payload.Manifest) string {
	address, _, _ := unstructured.NestedString(after.Object().Object, "spec", "clusterIP")
	switch {
	case kinds.SelectorOf(after.Object()) == nil:
		return ""
	case len(now) == 0:
		return fmt.Sprintf("it reached %s, and selects no pods of the new release", old[0].ID())
	case isOutside(before) && !isOutside(after):
		return "its type was changed to one by which clients outside of the cluster do not reach it"
	case address == corev1.ClusterIPNone: // clients use the ports of pods
		return ""
	}
	had, has := portsOf(old), portsOf(now)
	for _, port := range items(before.Object().Object, "spec", "ports") {
		successor := portOf(after, port["port"])
		if successor == nil {
			return fmt.Sprintf("it no longer has port %v", port["port"])
		}
		_, isName := successor["targetPort"].(string)
		if target := targetOf(successor); had[targetOf(port)] && !has[target] && (isName || len(has) > 0) {
			return fmt.Sprintf("its port %v leads to port %s, which no container of %s has", port["port"], target,
				now[0].ID())
		}
	}
	return ""
}

// isOutside reports whether clients outside of the cluster reach a Service by its type.
func isOutside(service *payload.Manifest) bool {
	kind, _, _ := unstructured.NestedString(service.Object().Object, "spec", "type")
	return kind == string(corev1.ServiceTypeLoadBalancer) || kind == string(corev1.ServiceTypeNodePort)
}

// portOf returns a port of a Service by its number; nil if there is none.
func portOf(service *payload.Manifest, number any) map[string]any {
	for _, port := range items(service.Object().Object, "spec", "ports") {
		if fmt.Sprint(port["port"]) == fmt.Sprint(number) {
			return port
		}
	}
	return nil
}

// targetOf returns the name or the number of the port of pods to which a port of a Service leads.
func targetOf(port map[string]any) string {
	return fmt.Sprint(cmp.Or(port["targetPort"], port["port"]))
}

// portsOf returns the names and the numbers of the ports of containers.
func portsOf(workloads []*payload.Manifest) map[string]bool {
	found := map[string]bool{}
	for _, m := range workloads {
		for _, container := range items(m.Object().Object, append(kinds.PodSpec(m.ID().GroupKind()), "containers")...) {
			for _, port := range items(container, "ports") {
				found[fmt.Sprint(port["name"])], found[fmt.Sprint(port["containerPort"])] = true, true
			}
		}
	}
	return found
}
