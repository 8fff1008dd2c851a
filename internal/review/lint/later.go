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
		if !needsItsPods(m) {
			continue
		}
		var seen []*manifest
		for _, reference := range m.references {
			if reference.Consequence != references.PodsWait {
				continue
			}
			through := ""
			later, where := laterThan(s, m, reference)
			if later == nil {
				later, where = laterThanClaim(s, m, reference)
				through = reference.To.String() + ", which needs "
			}
			if later != nil && !slices.Contains(seen, later) {
				seen = append(seen, later)
				r.field(m, reference.Path,
					"%s refers to %s%s, which comes later (%s:%d)%s: its pods don't start without that, and an "+
						"update waits for them before it goes on: rename the files, or move it within its file, so "+
						"that it comes first", reference.Field(), through, later.id, later.Path, later.Line,
					onCluster(where))
			}
		}
	}
}

// needsItsPods reports whether an update waits for pods of an object. An expression of its own may be true without
// them.
func needsItsPods(m *manifest) bool {
	replicas, isSet := m.get("spec", "replicas").(int64)
	_, hasExpression := m.annotations[ready.Annotation]
	hasPods := kinds.PodSpec(m.groupKind()) != nil
	return hasPods && ready.Awaits(m.Object(), ready.Full) && !hasExpression && !(isSet && replicas == 0)
}

// laterThan returns the manifest of the object of a reference if all of them come later, on a cluster that an update
// brings the object to; nil if there is none.
func laterThan(s *subject, m *manifest, reference references.Reference) (*manifest, payload.Filter) {
	id := reference.To
	if isMade(s, id) || references.IsBuiltIn(id) || isKnownObject(s, id) {
		return nil, payload.Filter{}
	}
	var inTime, later []*manifest
	for _, other := range s.byID[id] {
		switch {
		case other.isTombstone || !s.shareCluster(m, other):
		case isAwaitedBefore(s, m, other):
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
	if len(later) == 0 || s.makers().ofRights(id, "create") != "" {
		return nil, payload.Filter{}
	}
	if len(inTime) == 0 {
		where, _ := s.sharedCluster(m, later[0])
		return later[0], where
	}
	if where, isLate := s.clusterWithout(m, inTime); isLate {
		return later[0], where
	}
	return nil, payload.Filter{}
}

// isAwaitedBefore reports whether an update waits for an object before it applies another one. The objects of a
// component in a level are applied one after the other, and awaited after the last one, unless a post hook or a
// dependency is in between.
func isAwaitedBefore(s *subject, m, other *manifest) bool {
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

// laterThanClaim does the same for what a claim needs that the reference is to: pods wait until it is bound.
func laterThanClaim(s *subject, m *manifest, reference references.Reference) (*manifest, payload.Filter) {
	for _, claim := range s.byID[reference.To] {
		for _, of := range claim.references {
			if of.Consequence != references.PodsWait || !s.shareCluster(m, claim) {
				continue
			}
			if later, where := laterThan(s, m, of); later != nil {
				return later, where
			}
		}
	}
	return nil, payload.Filter{}
}
