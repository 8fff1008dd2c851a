package graph

import "slices"

// imply adds the implied dependencies to the graph. A node is cut where one of its
// tasks waits for, or is waited for by, a task of another node, so that no task
// waits longer than it must.
func (g *Graph) imply() {
	g.Implied, g.Conflicts = g.divideDependencies(Dependencies(g.Tasks))
	g.cut(g.Implied)
	home := g.NodesOfTasks()
	// Dependencies are in the order of the tasks that wait, so all of a node come in a
	// row: it is enough to know the edges of the current node.
	leadsTo := slices.Repeat([]int{none}, len(g.Nodes)) // last node to which each node is known to have an edge
	for _, d := range g.Implied {
		origin, next := home[d.Needs], home[d.Task]
		if leadsTo[next] != next { // the first dependency of this node
			leadsTo[next] = next
			for _, before := range g.Nodes[next].In {
				leadsTo[before] = next
			}
		}
		if leadsTo[origin] != next {
			leadsTo[origin] = next
			g.connect(origin, next)
		}
	}
}

// NodesOfTasks returns the node of each task.
func (g *Graph) NodesOfTasks() []int {
	home := make([]int, len(g.Tasks))
	for i, node := range g.Nodes {
		for _, task := range node.Tasks {
			home[task] = i
		}
	}
	return home
}

// divideDependencies divides dependencies into those that the order of the files allows, and those that it contradicts.
// Edges of the files always lead from a task to a later task. So each cycle has a dependency on a later task, and only
// such dependencies are conflicts.
func (g *Graph) divideDependencies(all []Dependency) (respected, conflicts []Dependency) {
	isBackward := func(d Dependency) bool { return d.Needs > d.Task }
	if !slices.ContainsFunc(all, isBackward) {
		return all, nil
	}
	group := g.cycles(all)
	for _, d := range all {
		if isBackward(d) && group[d.Needs] == group[d.Task] {
			conflicts = append(conflicts, d)
		} else {
			respected = append(respected, d)
		}
	}
	return respected, conflicts
}

// cycles gives each task a number, the same for all tasks that are on a cycle
// together. Its vertices are tasks and the nodes between them.
func (g *Graph) cycles(dependencies []Dependency) []int {
	after := make([][]int, len(g.Tasks)+len(g.Nodes))
	// A task leads to the next one of its node, the last one to the node itself,
	// and the node to the first tasks of those that wait for it.
	enter := func(node int) int {
		if tasks := g.Nodes[node].Tasks; len(tasks) > 0 {
			return tasks[0]
		}
		return len(g.Tasks) + node
	}
	for i, node := range g.Nodes {
		self := len(g.Tasks) + i
		for index, task := range node.Tasks {
			if index+1 < len(node.Tasks) {
				after[task] = append(after[task], node.Tasks[index+1])
			} else {
				after[task] = append(after[task], self)
			}
		}
		for _, out := range node.Out {
			after[self] = append(after[self], enter(out))
		}
	}
	for _, d := range dependencies {
		after[d.Needs] = append(after[d.Needs], d.Task)
	}
	return components(after)
}

// components gives each vertex the number of its strongly connected component. It
// is Tarjan's algorithm without recursion: a payload may be long.
func components(after [][]int) []int {
	const unseen = -1
	var (
		number    = slices.Repeat([]int{unseen}, len(after)) // number of each node, in the order of visits
		low       = make([]int, len(after))                  // the lowest that can be reached
		component = slices.Repeat([]int{unseen}, len(after))
		next      = make([]int, len(after)) // the edge to follow next
		open      []int                     // seen, and in no component yet
		count     int
	)
	visit := func(vertex int) []int {
		number[vertex], low[vertex] = count, count
		count++
		open = append(open, vertex)
		return []int{vertex}
	}
	for root := range after {
		if number[root] != unseen {
			continue
		}
		for path := visit(root); len(path) > 0; {
			vertex := path[len(path)-1]
			if next[vertex] < len(after[vertex]) {
				target := after[vertex][next[vertex]]
				next[vertex]++
				if number[target] == unseen {
					path = append(path, visit(target)...)
				} else if component[target] == unseen {
					low[vertex] = min(low[vertex], number[target])
				}
				continue
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				parent := path[len(path)-1]
				low[parent] = min(low[parent], low[vertex])
			}
			if low[vertex] == number[vertex] {
				for component[vertex] == unseen {
					component[open[len(open)-1]] = vertex
					open = open[:len(open)-1]
				}
			}
		}
	}
	return component
}

// cut divides nodes where dependencies begin or end.
func (g *Graph) cut(dependencies []Dependency) {
	home := g.NodesOfTasks()
	before := make([]bool, len(g.Tasks)) // true if the node is cut before the task
	after := make([]bool, len(g.Tasks))  // true if the node is cut after the task
	for _, d := range dependencies {
		if home[d.Task] != home[d.Needs] {
			before[d.Task], after[d.Needs] = true, true
		}
	}
	g.divide(func(previous, task int) bool { return after[previous] || before[task] })
}

// divide replaces nodes by chains of nodes. The first link of a chain has the incoming
// edges of its node, the last link the outgoing edges.
func (g *Graph) divide(isCut func(previous, task int) bool) {
	whole := g.Nodes
	g.Nodes = make([]Node, 0, len(whole))
	first, last := make([]int, len(whole)), make([]int, len(whole))
	for i, node := range whole {
		link, start := g.add(node.Tasks), 0
		first[i] = link
		for index := 1; index < len(node.Tasks); index++ {
			if !isCut(node.Tasks[index-1], node.Tasks[index]) {
				continue
			}
			g.Nodes[link].Tasks = node.Tasks[start:index:index]
			next := g.add(node.Tasks[index:])
			g.connect(link, next)
			link, start = next, index
		}
		last[i] = link
	}
	for i, node := range whole {
		for _, target := range node.Out {
			g.connect(last[i], first[target])
		}
	}
}
