// Package draw makes pictures of a graph: DOT in the words of the cluster-version
// operator, Mermaid, SVG without any other program, and plain text.
//
// It does the layout and the labels; the dependencies come from the graph. Its palette is also that of the pages, which
// embed the picture of a run.
//
// Each way to draw a Picture is one of its methods. Start with Picture.
package draw

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A Picture is a graph with a title and options for drawing it.
type Picture struct {
	Graph *graph.Graph
	Title string
	// Mode is the mode of the graph: only an update deletes objects.
	Mode graph.Mode
	// Dependencies are drawn dashed, between the nodes of their tasks.
	Dependencies []graph.Dependency
	// Manifests lists every manifest in formats that have room for it.
	Manifests bool
	// Reasons explain the levels of tasks that do not follow from their files or kinds.
	Reasons map[graph.Task]string

	// States are the states of the nodes in a run, for Embedded. If there are many nodes, those that are done, and
	// those whose turn comes later, are folded.
	States []State
	// Link returns the address of the page on a node; "" if there is none. A picture with states needs it.
	Link func(node int) string
	// Unfolded draws nodes one by one, up to the limit of a picture. Unfold is the address of that picture.
	Unfolded bool
	Unfold   string
}

// stateOf returns the state of a node in a run, if it is known.
func (p Picture) stateOf(b box) (state State, isKnown bool) {
	if b.node >= len(p.States) {
		return State{}, false
	}
	return p.States[b.node], true
}

// deletes reports whether the picture has a red box.
func (p Picture) deletes() bool {
	isTombstone := func(task graph.Task) bool { return task.IsTombstone() }
	return p.isUpdate() && slices.ContainsFunc(p.Graph.Tasks, isTombstone)
}

func (p Picture) isUpdate() bool { return p.Mode == "" || p.Mode == graph.Update }

// A box contains the labels and the counts of a node.
type box struct {
	node       int
	levels     []string // sorted, without repetition
	components []string // the same
	tasks      []graph.Task
	reasons    []string // reasons for the levels of the tasks, each once
	tombstones int
	isLater    bool // the next update deletes the objects of tombstones, not this run
	isDone     bool // the run has applied and deleted everything
	hooks      int  // lifecycle hooks of Deployments
	isBarrier  bool // a Job, which all later tasks wait for
}

// box describes a node that has tasks.
func (p Picture) box(node int) box {
	b := box{node: node, isLater: !p.isUpdate()}
	if state, isKnown := p.stateOf(b); isKnown {
		b.isDone = state.Tone == Good
	}
	for _, taskIndex := range p.Graph.Nodes[node].Tasks {
		task := p.Graph.Tasks[taskIndex]
		b.tasks = append(b.tasks, task)
		if task.IsTombstone() {
			b.tombstones++
		}
		b.hooks += len(StepsOf(task)) - 1
		if reason := p.Reasons[task]; reason != "" && !slices.Contains(b.reasons, reason) {
			b.reasons = append(b.reasons, reason)
		}
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

// Names returns the level and the components of a node with tasks, as the picture has them.
func (p Picture) Names(node int) (level, title string) {
	b := p.box(node)
	return b.level(), b.title()
}

// title names the components of the manifests of a box, or the Job.
func (b box) title() string {
	if b.isBarrier {
		return graph.Label(b.tasks[0])
	}
	return strings.Join(b.components, ", ")
}

// level returns the level of a box, or the first and last of several.
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

// count returns how many manifests a box has, how many tombstones, and how many lifecycle hooks they have.
func (b box) count() string {
	text := b.content()
	if b.tombstones > 0 {
		text += ", " + b.deletes()
	}
	return text
}

// later marks a tombstone in a run that deletes nothing.
const later = " (to delete later)"

// deletes returns how many tombstones a box has.
func (b box) deletes() string {
	switch {
	case b.isLater:
		return fmt.Sprintf("%d to delete later", b.tombstones)
	case b.isDone:
		return fmt.Sprintf("%d deleted", b.tombstones)
	default:
		return fmt.Sprintf("%d to delete", b.tombstones)
	}
}

// isRed reports whether the run is going to delete objects of a box.
func (b box) isRed() bool { return b.tombstones > 0 && !b.isLater && !b.isDone }

// because returns why the tasks of a box have their levels, in brackets; "" if that follows from files or kinds.
func (b box) because() string {
	if len(b.reasons) == 0 {
		return ""
	}
	return printable.Line("  (" + strings.Join(b.reasons, "; ") + ")")
}

// content returns how many manifests and lifecycle hooks a box has.
func (b box) content() string {
	text := printable.Count(len(b.tasks), "manifest")
	if b.hooks > 0 {
		text += ", " + printable.Count(b.hooks, "hook")
	}
	return text
}

// kinds returns the kinds of a box with their counts, the most frequent first.
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

// A rank is boxes that may run in parallel.
type rank []box

// ranks puts each box as early as its predecessors allow: the ranks are the rounds of a walk in which all nodes take
// the same time.
func (p Picture) ranks() []rank {
	var ranks []rank
	walk := p.Graph.Walk()
	for nodes := walk.Ready(); len(nodes) > 0; nodes = walk.Ready() {
		slices.Sort(nodes)
		var boxes rank
		for _, node := range nodes {
			boxes = append(boxes, p.box(node))
			walk.Done(node, graph.OK)
		}
		ranks = append(ranks, boxes)
	}
	return ranks
}

// writeEdges writes the edges of the graph, and then the dependencies, each in its own format.
func (p Picture) writeEdges(out io.Writer, edge, dependency string) {
	for i, node := range p.Graph.Nodes {
		for _, next := range node.Out {
			fmt.Fprintf(out, edge, i, next)
		}
	}
	for _, ends := range p.edges() {
		fmt.Fprintf(out, dependency, ends[0], ends[1])
	}
}

// edges returns the dependencies between nodes, each once, in order.
func (p Picture) edges() [][2]int {
	home := p.Graph.NodesOfTasks()
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

// A Step is one of the steps that an apply takes for a task, one after the other.
type Step struct {
	Task graph.Task
	Hook deploymenthook.Stage // "" for the object itself
}

// StepsOf returns the steps of a task: its object, and the lifecycle hooks of a Deployment around it.
func StepsOf(task graph.Task) []Step {
	object := Step{Task: task}
	if task.IsTombstone() {
		return []Step{object}
	}
	hooks, _ := deploymenthook.Parse(task.Object()) // problems were reported when the release was loaded
	var steps []Step
	for _, stage := range deploymenthook.Stages {
		if stage == deploymenthook.Post {
			steps = append(steps, object)
		}
		if hooks.Of(stage) != nil {
			steps = append(steps, Step{task, stage})
		}
	}
	return steps
}

// Label names the step: "deployment my-namespace/my-name", or "pre hook of" that.
func (s Step) Label() string {
	if s.Hook == "" {
		return graph.Label(s.Task)
	}
	return string(s.Hook) + " hook of " + graph.Label(s.Task)
}
