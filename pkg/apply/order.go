package apply

import (
	"slices"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An order is the graph of a payload, with the steps of its tasks. A task has one step, or several consecutive steps.
type order struct {
	graph *graph.Graph
	tasks []task
	steps []object.WalkStep
	// isUnawaited is true for a task whose object can't be ready before a later object exists: no step in between waits
	// for it.
	isUnawaited []bool
	// holds are the tasks whose objects must be ready before a step begins, beside the needs of the step itself.
	holds map[int][]int

	taskOf []int   // indexed by step
	firsts []int   // first steps, by task, followed by the number of steps
	nodes  [][]int // steps by node
}

// A task is a manifest at its place in the graph, which may be the place of another file: see moveAhead.
type task struct {
	*payload.Manifest
	file     string
	position int // index in the payload
}

// File returns the file whose place in the graph the task has.
func (t task) File() string { return t.file }

// newOrder orders manifests. A definition or a Namespace that the cluster lacks, and that comes after an object that
// needs it, is moved ahead of that object: in the order of the files neither could ever be applied.
func newOrder(manifests []*payload.Manifest, options graph.Options, applier *object.Applier,
	newSteps stepMaker) (*order, error) {
	tasks := make([]task, len(manifests))
	for i, manifest := range manifests {
		tasks[i] = task{manifest, manifest.File(), i}
	}
	options.Implied = true
	g := graph.Build(tasks, options)
	first, err := moves(tasks, g.Conflicts, applier)
	if err != nil {
		return nil, err
	}
	if len(first) > 0 {
		tasks = moveAhead(tasks, first)
		g = graph.Build(tasks, options)
	}
	o := &order{graph: g, tasks: tasks, isUnawaited: make([]bool, len(tasks))}
	for _, dependency := range g.Conflicts {
		o.isUnawaited[dependency.Task] = true
	}
	o.addSteps(newSteps)
	return o, nil
}

func (o *order) addSteps(newSteps stepMaker) {
	needs := make([][]int, len(o.tasks))
	for _, dependency := range o.graph.Implied {
		needs[dependency.Task] = append(needs[dependency.Task], dependency.Needs)
	}
	o.steps, o.taskOf, o.firsts = make([]object.WalkStep, 0, len(o.tasks)), make([]int, 0, len(o.tasks)),
		make([]int, 0, len(o.tasks)+1)
	for i, task := range o.tasks {
		o.firsts = append(o.firsts, len(o.steps))
		o.steps = newSteps(o.steps, i, task.Manifest, needs[i])
		for range len(o.steps) - o.firsts[i] {
			o.taskOf = append(o.taskOf, i)
		}
	}
	o.firsts = append(o.firsts, len(o.steps))
	o.nodes = make([][]int, len(o.graph.Nodes))
	for i, node := range o.graph.Nodes {
		o.nodes[i] = make([]int, 0, len(node.Tasks))
		for _, task := range node.Tasks {
			for step := o.firsts[task]; step < o.firsts[task+1]; step++ {
				o.nodes[i] = append(o.nodes[i], step)
			}
		}
	}
}

// holdHooks makes the first step of each Deployment with lifecycle hooks wait until all objects of earlier levels are
// ready. An install waits for nothing else before its end.
func (o *order) holdHooks() {
	o.holds = map[int][]int{}
	var awaited, level []int // tasks of earlier levels, and of the current level
	for i, task := range o.tasks {
		if name := graph.ParseName(task.file); i == 0 || !name.IsKnown() ||
			name.Level != graph.ParseName(o.tasks[i-1].file).Level {
			awaited, level = append(awaited, level...), nil
		}
		if graph.HasHooks(task) {
			o.holds[o.firsts[i]] = awaited
		}
		if !o.isUnawaited[i] {
			level = append(level, i)
		}
	}
}

// needsOf returns the tasks whose objects must be ready before a step begins.
func (o *order) needsOf(step int) []int {
	return slices.Concat(o.steps[step].Needs(), o.holds[step])
}

// tasksOf returns the tasks of some steps, each once. The steps of a task are consecutive.
func (o *order) tasksOf(steps []int) []int {
	tasks := make([]int, 0, len(steps))
	for _, step := range steps {
		if task := o.taskOf[step]; len(tasks) == 0 || tasks[len(tasks)-1] != task {
			tasks = append(tasks, task)
		}
	}
	return tasks
}

// stepOn returns the step that applies or deletes an object.
func (o *order) stepOn(id kinds.ID) (place int, exists bool) {
	place = slices.IndexFunc(o.steps, func(s object.WalkStep) bool { return s.ID().ID == id && s.ID().Hook == "" })
	return place, place >= 0
}

// moves returns the tasks to move ahead, each with the first task that needs it.
func moves(tasks []task, conflicts []graph.Dependency, applier *object.Applier) (map[int]int, error) {
	first := map[int]int{}
	for _, conflict := range conflicts {
		needed := tasks[conflict.Needs].Manifest
		if !kinds.IsContainer(needed.GroupVersionKind().GroupKind()) {
			continue
		}
		if before, isKnown := first[conflict.Needs]; isKnown {
			first[conflict.Needs] = min(before, conflict.Task)
			continue
		}
		exists, err := applier.Exists(needed)
		if err != nil {
			return nil, err
		}
		if !exists {
			first[conflict.Needs] = conflict.Task
		}
	}
	return first, nil
}

// moveAhead moves each task of a map before the task it maps to, as if both were in the same file.
func moveAhead(tasks []task, first map[int]int) []task {
	ahead := map[int][]task{}
	for needed, before := range first {
		ahead[before] = append(ahead[before], task{tasks[needed].Manifest, tasks[before].file, tasks[needed].position})
	}
	ordered := make([]task, 0, len(tasks))
	for i, item := range tasks {
		slices.SortFunc(ahead[i], func(a, b task) int { return a.position - b.position })
		ordered = append(ordered, ahead[i]...)
		if _, isMoved := first[i]; !isMoved {
			ordered = append(ordered, item)
		}
	}
	return ordered
}

// inPayload sorts the changes of steps by the order of the payload.
func (o *order) inPayload(changes []object.Change) []object.Change {
	tasks := make([]int, len(o.tasks)) // indexed by position
	for i, task := range o.tasks {
		tasks[task.position] = i
	}
	all := make([]object.Change, 0, len(changes))
	for _, task := range tasks {
		all = append(all, changes[o.firsts[task]:o.firsts[task+1]]...)
	}
	return all
}

// componentOf names the level and the component of a step; "" if its file names none.
func (o *order) componentOf(step int) string {
	return graph.ParseName(o.tasks[o.taskOf[step]].file).Words()
}

// partEnds returns the ends of the parts of a node: a part is a sequence of steps with one level and component.
func (o *order) partEnds(steps []int) []int {
	var ends []int
	for i := range steps {
		if i+1 == len(steps) || o.componentOf(steps[i]) != o.componentOf(steps[i+1]) {
			ends = append(ends, i+1)
		}
	}
	return ends
}
