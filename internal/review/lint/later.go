package lint

import (
	"slices"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// checkWaitsForLater looks for workloads whose pods can't start before an object exists that comes later. An update
// waits for the workload, and so never comes to the object. Objects that clusters have before the update are not waited
// for, nor those that a program of the payload may make.
func checkWaitsForLater(s *subject, r *reporter) {
	for _, m := range s.normal {
		if !m.needsItsPods() {
			continue
		}
		var seen []*manifest
		for _, reference := range m.references {
			if reference.Consequence != references.PodsWait {
				continue
			}
			through := ""
			later, cluster := s.findLater(m, reference)
			if later == nil {
				later, cluster = s.findLaterThanClaim(m, reference)
				through = reference.To.String() + ", which needs "
			}
			if later != nil && !slices.Contains(seen, later) {
				seen = append(seen, later)
				r.field(m, reference.Path,
					"%s refers to %s%s, which comes later (%s:%d)%s: its pods don't start without that, and an "+
						"update waits for them before it continues: rename a file, or move that object, so that it "+
						"comes first", reference.Field(), through, later.id, later.Path, later.Line,
					onCluster(cluster))
			}
		}
	}
}

// needsItsPods reports whether an update waits for pods of an object. A readiness expression may be true without pods.
func (m *manifest) needsItsPods() bool {
	replicas, isSet := m.get("spec", "replicas").(int64)
	_, hasExpression := m.annotations[ready.Annotation]
	hasPods := kinds.PodSpec(m.groupKind()) != nil
	return hasPods && ready.Awaits(m.Object(), ready.Full) && !hasExpression && !(isSet && replicas == 0)
}

// findLater returns a manifest of the referenced object if all manifests of the object come later than m, on a cluster
// where an update creates the object; nil otherwise.
func (s *subject) findLater(m *manifest, reference references.Reference) (*manifest, payload.Filter) {
	id := reference.To
	if s.isCreatedByController(id) || references.IsBuiltIn(id) || s.isKnownObject(id) {
		return nil, payload.Filter{}
	}
	var inTime, later []*manifest
	for _, other := range s.byID[id] {
		switch {
		case other.isTombstone || !s.shareCluster(m, other):
		case s.isAwaitedBefore(m, other):
			later = append(later, other)
		default:
			inTime = append(inTime, other)
		}
	}
	if s.previous != nil {
		inTime = append(inTime, slices.DeleteFunc(slices.Clone(s.previous.byID[id]), func(old *manifest) bool {
			return old.isTombstone
		})...)
	}
	if len(later) == 0 || s.creators().roleAllowing(id, "create") != "" {
		return nil, payload.Filter{}
	}
	if len(inTime) == 0 {
		cluster, _ := s.sharedCluster(m, later[0])
		return later[0], cluster
	}
	if cluster, isLate := s.clusterWithout(m, inTime); isLate {
		return later[0], cluster
	}
	return nil, payload.Filter{}
}

// isAwaitedBefore reports whether an update waits for an object before it applies another one. The objects of a
// component in a level are applied one after the other, and awaited after the last one, unless a post hook or a
// dependency is in between.
func (s *subject) isAwaitedBefore(m, other *manifest) bool {
	if m.node != other.node || !before(m, other) ||
		graph.ParseName(m.File()).Words() != graph.ParseName(other.File()).Words() {
		return before(m, other)
	}
	g := s.implied()
	isAwaited := slices.ContainsFunc(g.Implied, func(d graph.Dependency) bool {
		return d.Needs == m.task && m.task < d.Task && d.Task <= other.task
	})
	hooks, _ := deploymenthook.Parse(m.Object())
	nodes := g.NodesOfTasks() // dependencies divide nodes
	return isAwaited || nodes[m.task] != nodes[other.task] || hooks.Of(deploymenthook.Post) != nil
}

// findLaterThanClaim returns such a manifest of an object that a referenced claim needs: pods wait until the claim is
// bound.
func (s *subject) findLaterThanClaim(m *manifest, reference references.Reference) (*manifest, payload.Filter) {
	for _, claim := range s.byID[reference.To] {
		for _, need := range claim.references {
			if need.Consequence != references.PodsWait || !s.shareCluster(m, claim) {
				continue
			}
			if later, cluster := s.findLater(m, need); later != nil {
				return later, cluster
			}
		}
	}
	return nil, payload.Filter{}
}
