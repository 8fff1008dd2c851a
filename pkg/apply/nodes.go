package apply

import (
	"slices"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A nodeWalk is the progress of one node. Its steps are done one after the other, in parts: see order.parts.
type nodeWalk struct {
	node     int
	steps    []int
	parts    []int // the ends of the parts that are not done
	first    int   // the first step of the current part, as an index of steps
	current  int   // the current step, as an index of steps
	isBegun  bool  // the current part has begun
	hasBegun bool  // the first part of the node has begun
}

// beginNodes queues the first steps of nodes that are no longer blocked, except for those that the last walk has done.
func (w *walk) beginNodes() {
	for nodes := w.nodes.Ready(); len(nodes) > 0; nodes = w.nodes.Ready() {
		for _, node := range nodes {
			if w.before != nil && w.before.State(node) == graph.OK {
				w.nodes.Done(node, graph.OK)
			} else if w.ctx.Err() == nil {
				w.beginNode(node)
			}
		}
	}
}

func (w *walk) beginNode(node int) {
	steps := w.order.nodes[node]
	n := &nodeWalk{node: node, steps: steps, parts: w.order.parts(steps)}
	for _, step := range steps {
		w.nodeOf[step] = n
	}
	w.queueCurrent(n)
}

// queueCurrent queues the current step of a node.
func (w *walk) queueCurrent(n *nodeWalk) {
	step := n.steps[n.current]
	if n.hasBegun {
		w.queue.continued = append(w.queue.continued, step)
	} else {
		w.queue.fresh = append(w.queue.fresh, step)
	}
}

// beginPart reports that the first step of a part begins.
func (w *walk) beginPart(n *nodeWalk) {
	if !n.isBegun {
		n.isBegun, n.hasBegun = true, true
		w.components.begin(w.order.nodeOf(n.steps[n.first]))
	}
}

// ended continues the node of a step: with its next step, or the end of the part or of the node.
func (w *walk) ended(step int, isDone bool) {
	if isDone && w.isMissing[step] {
		delete(w.isMissing, step)
		defer w.doAgain(w.order.steps[step].ID().ID)
	}
	if w.isAgain[step] {
		delete(w.isAgain, step)
		w.isOver = w.isOver || !isDone
		return
	}
	n := w.nodeOf[step]
	n.current++
	switch {
	case !isDone:
		w.endPart(n, false)
	case n.current < n.parts[0]:
		w.queueCurrent(n)
	default:
		w.awaitPart(n)
	}
}

// awaitPart waits, in an update, until all objects of a part are ready. A node may have several parts, since
// consecutive levels of one component each share a node.
func (w *walk) awaitPart(n *nodeWalk) {
	if w.options.Mode != graph.Update || w.options.NoWait {
		w.endPart(n, true)
		return
	}
	tasks := w.order.tasksOf(n.steps[:n.parts[0]])
	isUnawaited := func(task int) bool { return w.order.isUnawaited[task] }
	w.await(slices.DeleteFunc(tasks, isUnawaited), &pendingWait{node: n})
}

// endPart continues with the next part of a node, or ends the node.
func (w *walk) endPart(n *nodeWalk, isDone bool) {
	if n.isBegun {
		w.components.end(w.order.nodeOf(n.steps[n.first]), outcomeOf(isDone, w.ctx.Err() != nil))
	}
	switch {
	case !isDone:
		w.nodes.Done(n.node, graph.Failed)
	case len(n.parts) > 1:
		n.first, n.current, n.parts, n.isBegun = n.parts[0], n.parts[0], n.parts[1:], false
		w.queueCurrent(n)
		return
	default:
		w.nodes.Done(n.node, graph.OK)
	}
	w.beginNodes()
}

// outcomeOf returns the outcome of a part: "" if it is done. An interrupted part has not failed.
func outcomeOf(isDone, isInterrupted bool) object.Action {
	switch {
	case isDone:
		return ""
	case isInterrupted:
		return object.NotDone
	default:
		return object.Failed
	}
}

// parts returns the ends of the parts of a node: a part is a sequence of steps with one level and component.
func (o *order) parts(steps []int) []int {
	var ends []int
	for i := range steps {
		if i+1 == len(steps) || o.nodeOf(steps[i]) != o.nodeOf(steps[i+1]) {
			ends = append(ends, i+1)
		}
	}
	return ends
}
