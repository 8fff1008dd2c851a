package plan

import (
	"container/heap"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// inOrder puts manifests in an order in which an update may apply them: that of the
// graph, and among what may run side by side that of the files.
func inOrder(manifests []*payload.Manifest) []*payload.Manifest {
	g := graph.Build(manifests, graph.Options{Mode: graph.Update, Implied: true})
	w := g.Walk()
	open := &byFirstTask{graph: g}
	ordered := make([]*payload.Manifest, 0, len(manifests))
	for {
		for _, node := range w.Ready() {
			heap.Push(open, node)
		}
		if open.Len() == 0 {
			return ordered
		}
		node, _ := heap.Pop(open).(int)
		for _, task := range g.Nodes[node].Tasks {
			ordered = append(ordered, manifests[task])
		}
		w.Done(node, graph.OK)
	}
}

// byFirstTask is a heap of nodes, the one that comes first in the files on top.
type byFirstTask struct {
	graph *graph.Graph
	nodes []int
}

func (h *byFirstTask) first(i int) int    { return h.graph.Nodes[h.nodes[i]].Tasks[0] }
func (h *byFirstTask) Len() int           { return len(h.nodes) }
func (h *byFirstTask) Less(i, j int) bool { return h.first(i) < h.first(j) }
func (h *byFirstTask) Swap(i, j int)      { h.nodes[i], h.nodes[j] = h.nodes[j], h.nodes[i] }

func (h *byFirstTask) Push(node any) {
	number, _ := node.(int)
	h.nodes = append(h.nodes, number)
}

func (h *byFirstTask) Pop() any {
	last := h.nodes[len(h.nodes)-1]
	h.nodes = h.nodes[:len(h.nodes)-1]
	return last
}
