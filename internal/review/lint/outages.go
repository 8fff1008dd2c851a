package lint

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/graph"
)

// These rules are about deletes of objects that other objects still need.

func checkInsideDeletedNamespace(s *subject, r *reporter) {
	for _, m := range s.normal {
		for _, holder := range s.deletedNamespaces(m) {
			if cluster, shared := s.sharedCluster(m, holder); shared {
				r.field(m, []string{"metadata", "namespace"},
					"%s deletes its Namespace and everything in it%s: move it, or drop it", holder.place(),
					onCluster(cluster))
				break
			}
		}
	}
}

// deletedNamespaces returns the tombstones of the Namespace that an object is in. A cluster-wide object is in
// none, even if it has metadata.namespace.
func (s *subject) deletedNamespaces(m *manifest) []*manifest {
	if m.id.Namespace == "" {
		return nil
	}
	var found []*manifest
	for _, holder := range s.namespaces(m.id.Namespace) {
		if holder.isTombstone && s.scopeOf(m) != kinds.Cluster {
			found = append(found, holder)
		}
	}
	return found
}

func checkOfDeletedDefinition(s *subject, r *reporter) {
	seen := map[*manifest]bool{} // there may be a tombstone for each variant of the definition
	for _, definition := range s.tombstones {
		for _, m := range s.outages.resourcesOf(definition) {
			if cluster, shared := s.sharedCluster(m, definition); shared && !m.isTombstone && !seen[m] {
				seen[m] = true
				r.field(m, []string{"kind"},
					"%s deletes the CustomResourceDefinition of %s, and all objects with it%s: drop it",
					definition.place(), m.kind.Kind, onCluster(cluster))
			}
		}
	}
}

// resourcesOf returns the custom resources of a CustomResourceDefinition. A tombstone may have
// no spec, only a name with the plural of the kind: then the kind is taken from the previous
// payload, or guessed as Kubernetes does.
func (f *outageFinder) resourcesOf(definition *manifest) []*manifest {
	if definition.groupKind() != kinds.CustomResourceDefinition {
		return nil
	}
	for _, d := range f.withPrevious(definition) {
		if kind := kinds.DefinedBy(d.Object()); kind.Kind != "" {
			return f.byKind[kind]
		}
	}
	var found []*manifest
	for _, kind := range f.kindsByPlural()[definition.id.Name] {
		found = append(found, f.byKind[kind]...)
	}
	return found
}

// kindsByPlural returns the kinds of the payload by the name that their
// CustomResourceDefinition would have.
func (f *outageFinder) kindsByPlural() map[string][]schema.GroupKind {
	if f.plurals == nil {
		f.plurals = map[string][]schema.GroupKind{}
		for kind := range f.byKind {
			name := kinds.DefinitionName(kind)
			f.plurals[name] = append(f.plurals[name], kind)
		}
	}
	return f.plurals
}

// withPrevious returns a manifest, and the manifests of its object in the previous payload. Tombstones often have only
// a name.
func (s *subject) withPrevious(m *manifest) []*manifest {
	found := []*manifest{m}
	if s.previous != nil {
		found = append(found, s.previous.byID[m.id]...)
	}
	return found
}

// An outageFinder finds deletes of objects that other objects still need.
type outageFinder struct {
	*subject
	plurals   map[string][]schema.GroupKind // see kindsByPlural
	workloads graph.PodIndex[*manifest]     // see workloadsOf
}

// checkBackendDeleted looks for Services, or workloads behind them, that are deleted while the
// API server still calls them. Requests that need the call would then fail.
func checkBackendDeleted(s *subject, r *reporter) {
	if len(s.tombstones) == 0 {
		return
	}
	for _, kind := range kinds.Callers() {
		for _, caller := range s.byKind[kind] {
			s.outages.reportBackends(r, caller)
		}
	}
	for _, caller := range s.droppedObjects() { // a dropped caller stays in the cluster
		if kinds.ClientConfigPath(caller.groupKind()) != nil {
			s.outages.reportBackends(r, caller)
		}
	}
}

// reportBackends reports deletes of the Services that the API server calls because of an
// object: those that the object names, and those that it named in the previous payload.
func (f *outageFinder) reportBackends(r *reporter, caller *manifest) {
	now := caller.backends()
	for _, backend := range now {
		f.reportBackend(r, caller, backend, caller.isTombstone)
	}
	for _, old := range f.withPrevious(caller)[1:] {
		for _, backend := range old.backends() {
			if !slices.Contains(now, backend) && f.shareCluster(old, caller) {
				now = append(now, backend)
				f.reportBackend(r, caller, backend, !caller.isPrevious)
			}
		}
	}
}

// reportBackend reports the first tombstone that deletes a caller's backend. With isLast, only one
// that may be applied before the caller, which ends the calls.
func (f *outageFinder) reportBackend(r *reporter, caller *manifest, backend types.NamespacedName, isLast bool) {
	for _, deleter := range f.deletersOf(caller, backend) {
		cluster, shared := f.sharedCluster(caller, deleter)
		if !shared || isLast && before(caller, deleter) {
			continue
		}
		called := "this Service"
		switch {
		case deleter.groupKind() == kinds.Namespace:
			called = fmt.Sprintf("the Service %s in it", backend)
		case kinds.IsWorkload(deleter.groupKind()):
			called = fmt.Sprintf("the Service %s, which has no other workload", backend)
		}
		var todo string
		switch {
		case caller.isPrevious:
			todo = ", and was dropped without a tombstone, so it keeps calling: add one that comes before this"
		case caller.isTombstone && before(deleter, caller):
			todo = ", and is only deleted later: delete that first"
		case caller.isTombstone:
			todo = ", and may only be deleted later: delete that first"
		case isLast:
			todo = " until that is applied: delete this later"
		case caller.groupKind() == kinds.CustomResourceDefinition:
			todo = " to convert versions: change that first, or keep this"
		default:
			todo = ": delete that first, or keep this"
		}
		r.at(deleter, "%s calls %s%s%s", caller.named(), called, onCluster(cluster), todo)
		return
	}
}

// backends returns the Services that an object has the API server call, without those whose failure it ignores.
func (m *manifest) backends() []types.NamespacedName {
	object := m.Object()
	if webhooks, _ := m.get("webhooks").([]any); slices.ContainsFunc(webhooks, isOptional) {
		object = &unstructured.Unstructured{Object: maps.Clone(object.Object)}
		object.Object["webhooks"] = slices.DeleteFunc(slices.Clone(webhooks), isOptional)
	}
	return kinds.ConfiguredServices(kinds.ClientConfigs(object))
}

// isOptional reports whether the API server ignores failures of a webhook.
func isOptional(webhook any) bool {
	fields, _ := webhook.(map[string]any)
	return fields["failurePolicy"] == "Ignore"
}

// deletersOf returns the tombstones that leave a Service without a backend: its own,
// that of its Namespace, and that of the last workload behind it on the clusters of
// the caller.
func (f *outageFinder) deletersOf(caller *manifest, service types.NamespacedName) []*manifest {
	id := kinds.NewID(kinds.Service, service.Namespace, service.Name)
	var found []*manifest
	for _, m := range slices.Concat(f.namespaces(service.Namespace), f.byID[id]) {
		if m.isTombstone {
			found = append(found, m)
		}
	}
	var serving, deleted []*manifest
	for _, definition := range f.allOf(id) {
		for _, m := range f.workloadsOf(definition) {
			switch {
			case !f.selects(definition, m):
			case m.isTombstone:
				deleted = append(deleted, m)
			case f.shareCluster(m, caller):
				serving = append(serving, m)
			}
		}
	}
	if len(serving) == 0 {
		found = append(found, deleted...)
	}
	return found
}

// workloadsOf returns the workloads whose pods a Service may select, by this payload and the previous one.
func (f *outageFinder) workloadsOf(service *manifest) []*manifest {
	if f.workloads == nil {
		f.workloads = graph.PodIndex[*manifest]{}
		for _, m := range f.manifests {
			if !kinds.IsWorkload(m.groupKind()) {
				continue
			}
			for _, same := range f.withPrevious(m) {
				f.workloads.Add(same.Object(), m)
			}
		}
	}
	return f.workloads.Candidates(service.Object())
}

// allOf returns the manifests of an object in this and the previous payload.
func (f *outageFinder) allOf(id kinds.ID) []*manifest {
	if f.previous == nil {
		return f.byID[id]
	}
	return slices.Concat(f.byID[id], f.previous.byID[id])
}

// selects reports whether a Service selects the pods of a workload.
func (f *outageFinder) selects(service, m *manifest) bool {
	return kinds.IsWorkload(m.groupKind()) && slices.ContainsFunc(f.withPrevious(m), func(same *manifest) bool {
		return graph.Selects(service.Object(), same.Object())
	})
}

// ownedByKubernetes are the Namespaces that every cluster has.
var ownedByKubernetes = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

func checkProtectedNamespace(s *subject, r *reporter) {
	for _, m := range s.tombstones {
		if m.groupKind() == kinds.Namespace && slices.Contains(ownedByKubernetes, m.id.Name) {
			r.at(m, "every cluster has this Namespace, and no release owns it: drop the tombstone")
		}
	}
}

func checkDeleteInsideDeleted(s *subject, r *reporter) {
	for _, m := range s.tombstones {
		holders := s.deletedNamespaces(m)
		if len(holders) == 0 || !s.shareCluster(m, m) {
			continue
		}
		if _, needed := s.clusterWithout(m, holders); !needed { // needed on clusters that keep the Namespace
			r.at(m, "%s deletes its Namespace, and this with it: drop this tombstone", holders[0].place())
		}
	}
}

func checkDeleteAfterDefinition(s *subject, r *reporter) {
	seen := map[*manifest]bool{} // there may be a tombstone for each variant of the definition
	for _, definition := range s.tombstones {
		for _, m := range s.outages.resourcesOf(definition) {
			if !m.isTombstone || seen[m] || !s.shareCluster(m, definition) || before(m, definition) {
				continue
			}
			seen[m] = true
			when := "before this"
			if !before(definition, m) {
				when = "perhaps before this"
			}
			r.at(m, "%s deletes its CustomResourceDefinition, and all objects with it, %s: name this file so that it "+
				"comes first, or drop it", definition.place(), when)
		}
	}
}
