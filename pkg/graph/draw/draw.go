// Package draw makes pictures of a graph: DOT in the words of the cluster-version
// operator, Mermaid, SVG without any other program, and plain text.
//
// It lays out and names things; what depends on what is the graph's affair.
//
// A Picture is the value to start from; each way to draw it is one of its methods.
package draw

import (
	"fmt"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/printable"
)

// A Picture is a graph and what to say about it.
type Picture struct {
	Graph *graph.Graph
	Title string
	// Dependencies are drawn dashed, between the nodes of their tasks.
	Dependencies []graph.Dependency
	// Manifests lists every manifest where there is room for it.
	Manifests bool
}

// A box is what there is to say about a node.
type box struct {
	node       int
	levels     []string // in order, without repetition
	components []string // the same
	tasks      []graph.Task
	tombstones int
	hooks      int  // lifecycle hooks of Deployments
	isBarrier  bool // a Job, which nothing overtakes
}

// boxes describes the nodes that have tasks.
func (p Picture) boxes() []box {
	var boxes []box
	for i, node := range p.Graph.Nodes {
		if len(node.Tasks) == 0 {
			continue
		}
		boxes = append(boxes, p.box(i))
	}
	return boxes
}

func (p Picture) box(node int) box {
	b := box{node: node}
	for _, at := range p.Graph.Nodes[node].Tasks {
		task := p.Graph.Tasks[at]
		b.tasks = append(b.tasks, task)
		if task.IsTombstone() {
			b.tombstones++
		}
		b.hooks += len(StepsOf(task)) - 1
		name := graph.ParseName(task.File())
		if !name.IsKnown() {
			name = graph.Name{Component: printable.Line(task.File())}
		}
		if name.Level != "" && !slices.Contains(b.levels, name.Level) {
			b.levels = append(b.levels, name.Level)
		}
		if !slices.Contains(b.components, name.Component) {
			b.components = append(b.components, name.Component)
		}
	}
	b.isBarrier = len(b.tasks) == 1 && graph.IsBarrier(b.tasks[0])
	return b
}

// title names who owns the manifests of a box.
func (b box) title() string {
	if b.isBarrier {
		return graph.Label(b.tasks[0])
	}
	return strings.Join(b.components, ", ")
}

// level is the level of a box, or the first and last of several.
func (b box) level() string {
	switch len(b.levels) {
	case 0:
		return "-"
	case 1:
		return b.levels[0]
	default:
		return b.levels[0] + "–" + b.levels[len(b.levels)-1]
	}
}

// count says how many manifests there are, how many of them delete, and how many lifecycle hooks they have.
func (b box) count() string {
	text := b.content()
	if b.tombstones > 0 {
		text += fmt.Sprintf(", %d to delete", b.tombstones)
	}
	return text
}

// content says how many manifests and lifecycle hooks there are.
func (b box) content() string {
	text := printable.Count(len(b.tasks), "manifest")
	if b.hooks > 0 {
		text += ", " + printable.Count(b.hooks, "hook")
	}
	return text
}

// kinds counts the kinds of a box, the most frequent first.
func (b box) kinds() string {
	counts := map[string]int{}
	var names []string
	for _, task := range b.tasks {
		kind := printable.Line(task.Object().GetKind())
		if counts[kind] == 0 {
			names = append(names, kind)
		}
		counts[kind]++
	}
	slices.SortStableFunc(names, func(a, b string) int { return counts[b] - counts[a] })
	for i, name := range names {
		if counts[name] > 1 {
			names[i] = fmt.Sprintf("%d %s", counts[name], name)
		}
	}
	return strings.Join(names, ", ")
}

// A rank is boxes that nothing forces one after the other.
type rank []box

// ranks puts each box as early as what it waits for allows.
func (p Picture) ranks() []rank {
	depth := make([]int, len(p.Graph.Nodes))
	missing := make([]int, len(p.Graph.Nodes))
	var open []int
	for i, node := range p.Graph.Nodes {
		missing[i] = len(node.In)
		if missing[i] == 0 {
			open = append(open, i)
		}
	}
	for ; len(open) > 0; open = open[1:] {
		node := p.Graph.Nodes[open[0]]
		below := depth[open[0]]
		if len(node.Tasks) > 0 {
			below++
		}
		for _, out := range node.Out {
			depth[out] = max(depth[out], below)
			if missing[out]--; missing[out] == 0 {
				open = append(open, out)
			}
		}
	}
	var ranks []rank
	for _, b := range p.boxes() {
		for len(ranks) <= depth[b.node] {
			ranks = append(ranks, nil)
		}
		ranks[depth[b.node]] = append(ranks[depth[b.node]], b)
	}
	return ranks
}

// edges are the dependencies between nodes, each once, in order.
func (p Picture) edges() [][2]int {
	home := make([]int, len(p.Graph.Tasks))
	for i, node := range p.Graph.Nodes {
		for _, task := range node.Tasks {
			home[task] = i
		}
	}
	known := map[[2]int]bool{}
	var edges [][2]int
	for _, d := range p.Dependencies {
		edge := [2]int{home[d.Needs], home[d.Task]}
		if edge[0] != edge[1] && !known[edge] {
			known[edge] = true
			edges = append(edges, edge)
		}
	}
	return edges
}
