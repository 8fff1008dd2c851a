package graph

import "fmt"

// A NodeState is the state of a node in a walk.
type NodeState string

// The states of a node; the last three are final.
const (
	Blocked NodeState = "blocked" // the node waits for other nodes
	Ready   NodeState = "ready"   // the node is not blocked, and has not started
	Running NodeState = "running" // Walk.Ready has returned it
	OK      NodeState = "ok"
	Failed  NodeState = "failed"  // nodes that wait for it will never be ready
	Skipped NodeState = "skipped" // the node had nothing to do: the nodes after it may continue
)

// A Walk traverses a graph once. The caller gets nodes to work on from Ready, and
// reports the end of each to Done. Each edge is visited once, so the cost is linear in
// the size of the graph.
type Walk struct {
	graph   *Graph
	states  []NodeState
	missing []int // the number of predecessors that are not done yet
	ready   []int // nodes for the next call of Ready, in order
	open    int   // nodes that have tasks and are not done
}

// Walk begins a walk.
func (g *Graph) Walk() *Walk {
	w := &Walk{graph: g, states: make([]NodeState, len(g.Nodes)), missing: make([]int, len(g.Nodes))}
	var roots []int
	for i, node := range g.Nodes {
		w.states[i] = Blocked
		w.missing[i] = len(node.In)
		if len(node.Tasks) > 0 {
			w.open++
		}
		if len(node.In) == 0 {
			roots = append(roots, i)
		}
	}
	w.release(roots)
	return w
}

// Ready returns the nodes that have become ready since it was last called. All of
// them have tasks.
func (w *Walk) Ready() []int {
	ready := w.ready
	w.ready = nil
	for _, node := range ready {
		w.states[node] = Running
	}
	return ready
}

// Done reports the final state of a node that Ready has returned: OK, Failed or Skipped.
func (w *Walk) Done(node int, end NodeState) {
	if isEnd := end == OK || end == Failed || end == Skipped; w.states[node] != Running || !isEnd {
		panic(fmt.Sprintf("graph: a node that is %s can't become %s", w.states[node], end))
	}
	w.states[node] = end
	if end == Failed {
		return
	}
	w.open--
	w.release(w.unblock(node))
}

// Finished reports whether every node is done. A walk with a failed node never is.
func (w *Walk) Finished() bool { return w.open == 0 }

// State returns the state of a node.
func (w *Walk) State(node int) NodeState { return w.states[node] }

// unblock counts a node as done in the nodes after it, and returns those that no longer wait for any node.
func (w *Walk) unblock(node int) []int {
	var free []int
	for _, next := range w.graph.Nodes[node].Out {
		if w.missing[next]--; w.missing[next] == 0 {
			free = append(free, next)
		}
	}
	return free
}

// release makes nodes ready. Nodes without tasks are done at once.
func (w *Walk) release(nodes []int) {
	for len(nodes) > 0 {
		node := nodes[0]
		nodes = nodes[1:]
		if len(w.graph.Nodes[node].Tasks) > 0 {
			w.states[node] = Ready
			w.ready = append(w.ready, node)
			continue
		}
		w.states[node] = OK
		nodes = append(nodes, w.unblock(node)...)
	}
}

// WhyBlocked names the nodes with tasks that a node waits for directly, in order. The list is empty for an unblocked
// node.
func (w *Walk) WhyBlocked(node int) []int {
	if w.states[node] != Blocked {
		return nil
	}
	var blockers []int
	seen := map[int]bool{}
	var search func(node int)
	search = func(node int) {
		for _, before := range w.graph.Nodes[node].In {
			if w.states[before] == OK || w.states[before] == Skipped || seen[before] {
				continue
			}
			seen[before] = true
			if len(w.graph.Nodes[before].Tasks) == 0 {
				search(before)
				continue
			}
			blockers = append(blockers, before)
		}
	}
	search(node)
	return blockers
}
