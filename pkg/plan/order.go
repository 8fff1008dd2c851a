package plan

import (
	"slices"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// inOrder returns manifests in an order in which an update may apply them: that of the graph, and
// among nodes that may run side by side that of the files.
func inOrder(manifests []*payload.Manifest) []*payload.Manifest {
	g := graph.Build(manifests, graph.Options{Mode: graph.Update, Implied: true})
	firstTask := func(node int) int { return g.Nodes[node].Tasks[0] }
	w := g.Walk()
	var ready []int // the node that comes first in the files last
	ordered := make([]*payload.Manifest, 0, len(manifests))
	for {
		for _, node := range w.Ready() {
			at, _ := slices.BinarySearchFunc(ready, node, func(a, b int) int { return firstTask(b) - firstTask(a) })
			ready = slices.Insert(ready, at, node)
		}
		if len(ready) == 0 {
			return ordered
		}
		node := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		for _, task := range g.Nodes[node].Tasks {
			ordered = append(ordered, manifests[task])
		}
		w.Done(node, graph.OK)
	}
}
