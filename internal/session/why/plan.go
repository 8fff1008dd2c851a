package why

import (
	"cmp"
	"path"
	"slices"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// plan finds the place of the object in the release, if the question names one. An object
// that is there twice, deleted and made, is to be there.
func (g *gatherer) plan() {
	if g.Release == nil {
		return
	}
	g.facts.Plan = &ReleasePlace{Release: g.Release.Name, Version: g.Release.Version}
	tasks := g.Release.Manifests
	at := slices.IndexFunc(tasks, func(m *payload.Manifest) bool { return m.ID() == g.Object && !m.IsTombstone() })
	if at < 0 {
		at = slices.IndexFunc(tasks, func(m *payload.Manifest) bool { return m.ID() == g.Object })
	}
	if at < 0 {
		return
	}
	g.manifest = tasks[at]
	plan := g.facts.Plan
	plan.File, plan.Node, plan.Deletes = g.manifest.Path, nodeOf(g.manifest.Path), g.manifest.IsTombstone()
	built := graph.Build(tasks, graph.Options{Implied: true})
	for i, node := range built.Nodes {
		if slices.Contains(node.Tasks, at) {
			plan.After = before(built, tasks, i)
		}
	}
	for _, dependency := range slices.Concat(built.Implied, built.Conflicts) {
		if dependency.Task == at {
			needed := tasks[dependency.Needs]
			plan.Needs = append(plan.Needs, Need{Object: needed.ID(), File: needed.Path, Node: nodeOf(needed.Path), Why: dependency.Why})
		}
	}
}

// before are the nodes that one comes right after, by their names.
func before(g *graph.Graph, tasks []*payload.Manifest, node int) []string {
	var names []string
	for _, blocker := range g.Walk().WhyBlocked(node) {
		first := tasks[g.Nodes[blocker].Tasks[0]]
		if name := cmp.Or(nodeOf(first.Path), first.ID().String()); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// nodeOf is the level and the component that the name of a file says; "" if it says none.
func nodeOf(file string) string { return graph.ParseName(path.Base(file)).Words() }
