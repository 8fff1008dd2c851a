package why

import (
	"cmp"
	"path"
	"slices"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// plan finds the place of the object in the release, if the query names one. An object
// that has both a tombstone and a manifest should exist.
func (g *gatherer) plan() {
	if g.Release == nil {
		return
	}
	g.facts.Plan = &ReleasePlace{Release: g.Release.Name, Version: g.Release.Version}
	tasks := g.Release.Manifests
	index := slices.IndexFunc(tasks, func(m *payload.Manifest) bool {
		return m.ID() == g.facts.Object && !m.IsTombstone()
	})
	if index < 0 {
		index = slices.IndexFunc(tasks, func(m *payload.Manifest) bool { return m.ID() == g.facts.Object })
	}
	if index < 0 {
		return
	}
	g.manifest = tasks[index]
	plan := g.facts.Plan
	plan.File, plan.Node, plan.Deletes = g.manifest.Path, nodeOf(g.manifest.Path), g.manifest.IsTombstone()
	built := graph.Build(tasks, graph.Options{Implied: true})
	for i, node := range built.Nodes {
		if slices.Contains(node.Tasks, index) {
			plan.After = predecessors(built, tasks, i)
		}
	}
	for _, dependency := range slices.Concat(built.Implied, built.Conflicts) {
		if dependency.Task == index {
			needed := tasks[dependency.Needs]
			plan.Needs = append(plan.Needs,
				Need{Object: needed.ID(), File: needed.Path, Node: nodeOf(needed.Path), Why: dependency.Why})
		}
	}
}

// predecessors returns the names of the nodes right before a node.
func predecessors(g *graph.Graph, tasks []*payload.Manifest, node int) []string {
	var names []string
	for _, blocker := range g.Walk().WhyBlocked(node) {
		first := tasks[g.Nodes[blocker].Tasks[0]]
		if name := cmp.Or(nodeOf(first.Path), first.ID().String()); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// nodeOf returns the level and the component in the name of a file; "" if it has none.
func nodeOf(file string) string { return graph.ParseName(path.Base(file)).Words() }
