package plan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A traffic finds where the requests of a release go.
type traffic struct {
	objects map[kinds.ID]*payload.Manifest // without tombstones
	pods    graph.PodIndex[*payload.Manifest]
	hosts   map[string]bool // hosts of Ingresses
}

func trafficOf(manifests []*payload.Manifest) traffic {
	t := traffic{map[kinds.ID]*payload.Manifest{}, graph.PodIndex[*payload.Manifest]{}, map[string]bool{}}
	for _, m := range manifests {
		if m.IsTombstone() {
			continue
		}
		t.objects[m.ID()] = m
		if kinds.IsWorkload(m.ID().GroupKind()) {
			t.pods.Add(m.Object(), m)
		}
		for _, host := range hostsOf(m) {
			t.hosts[host] = true
		}
	}
	return t
}

// reached returns the first workload whose pods a Service selects; nil if there is none.
func (t traffic) reached(service *payload.Manifest) *payload.Manifest {
	for _, workload := range t.pods.Candidates(service.Object()) {
		if graph.Selects(service.Object(), workload.Object()) {
			return workload
		}
	}
	return nil
}

// hostsOf returns the hosts of an Ingress.
func hostsOf(m *payload.Manifest) (hosts []string) {
	rules, _, _ := unstructured.NestedSlice(m.Object().Object, "spec", "rules")
	for _, rule := range rules {
		fields, _ := rule.(map[string]any)
		if host, isText := fields["host"].(string); isText && m.ID().GroupKind() == kinds.Ingress {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// unreachable returns warnings of Services that reached pods of the old release and reach none of the new one, although
// the new release still has the Service or the pods, and of Ingresses with hosts that the new release does not serve.
func (c *comparer) unreachable(before, after []*payload.Manifest) (found []Warning) {
	old, now := trafficOf(before), trafficOf(after)
	add := func(id kinds.ID, format string, args ...any) {
		found = append(found, Warning{Unreachable, id, fmt.Sprintf(format, args...)})
	}
	for _, m := range before {
		id, workload := m.ID(), (*payload.Manifest)(nil)
		successor, target := now.objects[id], c.to.manifests[storedID(m)]
		isDeleted := target != nil && target.IsTombstone()
		if old.objects[id] != m || successor == nil && !isDeleted {
			continue
		}
		if id.GroupKind() == kinds.Service {
			workload = old.reached(m)
		}
		for _, host := range hostsOf(m) {
			if !now.hosts[host] {
				add(id, "no Ingress of the new release has the host %s, which it had", host)
			}
		}
		switch {
		case workload == nil:
		case isDeleted && now.objects[workload.ID()] != nil:
			add(id, "it is deleted, and %s, which it reached, stays", workload.ID())
		case !isDeleted && now.reached(successor) == nil && selects(successor):
			add(id, "it reached %s, and selects no pods of the new release", workload.ID())
		}
	}
	return found
}

// selects reports whether a Service has a selector.
func selects(service *payload.Manifest) bool {
	selector, _, _ := unstructured.NestedMap(service.Object().Object, "spec", "selector")
	return len(selector) > 0
}
