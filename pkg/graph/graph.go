// Package graph orders the manifests of a payload by the names of their files, as
// the cluster-version operator does: levels one after the other, the components of
// a level side by side, the manifests of a component in a row, and nothing past a
// Job before it is done. A Walk traverses the graph and returns at any time which
// nodes are ready, and which nodes block the rest.
//
// It only decides: it has no goroutines, no cluster and no clock. It knows tasks
// through the small interface Task.
//
// Start with Build, then Graph.Walk.
package graph

import (
	"cmp"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Task is one step: a manifest to apply.
type Task interface {
	File() string                       // the name of its file, which decides its place in the order
	Object() *unstructured.Unstructured // the object to apply
	IsTombstone() bool                  // reports whether the task deletes the object
}

// Label names a task's object the way the cluster-version operator does:
// "deployment my-namespace/my-name".
func Label(task Task) string {
	object := task.Object()
	name := object.GetName()
	if namespace := object.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return printable.Line(strings.ToLower(object.GetKind()) + " " + name)
}

// A Mode is the purpose of a graph, which decides how strict the order is.
type Mode string

const (
	// Update keeps the order: a component changes only when the earlier levels are
	// ready, so that a mistake stops early.
	Update Mode = "update"
	// Install starts all components at once: nothing exists yet that could break. Only a
	// level with lifecycle hooks waits for earlier levels, and blocks later levels.
	Install Mode = "install"
	// Reconcile is like Install, in another order at each attempt, so that one
	// component that fails does not always keep the same others waiting.
	Reconcile Mode = "reconcile"
)

// Options configure a graph. The zero value is an update in the cluster-version
// operator's order.
type Options struct {
	Mode Mode // Update, if it is empty
	// Attempt is the number of earlier attempts of Reconcile. It shuffles the order.
	Attempt int
	// Implied also respects the dependencies that the objects imply: see Dependencies.
	Implied bool
}

// A Graph has nodes and the edges between them.
type Graph struct {
	Tasks []Task
	Nodes []Node
	// Implied are the dependencies that the graph respects because of Options.Implied.
	Implied []Dependency
	// Conflicts are dependencies that the order of the files contradicts. The files
	// win: these are not respected.
	Conflicts []Dependency
}

// A Node is tasks that are done one after the other, in this order. A node without
// tasks only connects others: it reduces m×n edges to m+n.
type Node struct {
	Tasks []int // indexes of Graph.Tasks
	In    []int // nodes that must be done before
	Out   []int // nodes that wait for this one
}

// Build makes the graph of tasks, which must be in the order of their files.
func Build[T Task](tasks []T, options Options) *Graph {
	g := &Graph{Tasks: make([]Task, len(tasks))}
	for i, task := range tasks {
		g.Tasks[i] = task
	}
	g.build(options)
	if options.Implied {
		g.imply()
	}
	return g
}

// build adds the nodes: a chain of Jobs, in an install also of levels with lifecycle hooks, and of the tasks between
// them.
func (g *Graph) build(options Options) {
	layout := newLayout(g.Tasks, options)
	last := none
	segments := layout.segments(g.Tasks)
	for i, segment := range segments {
		isLast := i == len(segments)-1
		last = g.addSegment(layout.steps(segment), last, isLast)
	}
	if len(segments) == 0 {
		g.add(nil)
	}
}

// none is the index of no node.
const none = -1

// add appends a node.
func (g *Graph) add(tasks []int) int {
	g.Nodes = append(g.Nodes, Node{Tasks: tasks})
	return len(g.Nodes) - 1
}

// connect draws an edge.
func (g *Graph) connect(before, after int) {
	g.Nodes[before].Out = append(g.Nodes[before].Out, after)
	g.Nodes[after].In = append(g.Nodes[after].In, before)
}

// addSegment appends steps that follow one after the other, each of parallel nodes,
// and returns the node that the next segment has to wait for. A segment of more than
// one node begins with a node without tasks, and ends with another one if a segment
// follows.
func (g *Graph) addSegment(steps [][][]int, after int, isLast bool) int {
	if len(steps) == 1 && len(steps[0]) == 1 {
		node := g.add(steps[0][0])
		if after != none {
			g.connect(after, node)
		}
		return node
	}
	anchor := g.add(nil)
	if after != none {
		g.connect(after, anchor)
	}
	ends := []int{anchor}
	for _, step := range steps {
		if len(ends) > 1 && len(step) > 1 {
			ends = []int{g.join(ends)}
		}
		starts := ends
		ends = make([]int, 0, len(step))
		for _, tasks := range step {
			node := g.add(tasks)
			ends = append(ends, node)
			for _, start := range starts {
				g.connect(start, node)
			}
		}
	}
	if isLast {
		return none
	}
	return g.join(ends)
}

// join appends a node without tasks that waits for others.
func (g *Graph) join(ends []int) int {
	spacer := g.add(nil)
	for _, end := range ends {
		g.connect(end, spacer)
	}
	return spacer
}

// A Name is the level and the component in the name of a manifest's file,
// 0000_LEVEL_COMPONENT_rest. The Name of other files is empty.
type Name struct {
	Level     string // digits, compared as text: "5" and "05" are two levels
	Component string // letters, digits, and dashes between them
}

// IsKnown reports whether the file name has a level and a component.
func (n Name) IsKnown() bool { return n.Component != "" }

// Words returns the name for people: "level 10, web"; "" if it is not known.
func (n Name) Words() string {
	if !n.IsKnown() {
		return ""
	}
	return "level " + n.Level + ", " + n.Component
}

// CompareLevels compares the names of levels by their numbers. Files without a level come last.
func CompareLevels(a, b string) int {
	if (a == "") != (b == "") {
		return cmp.Compare(len(b), len(a))
	}
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// namePattern is the pattern of the cluster-version operator.
var namePattern = regexp.MustCompile(`^0000_(\d+)_([a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*?)_`)

// ParseName reads the name of a file.
func ParseName(file string) Name {
	found := namePattern.FindStringSubmatch(file)
	if found == nil {
		return Name{}
	}
	return Name{Level: found[1], Component: found[2]}
}
