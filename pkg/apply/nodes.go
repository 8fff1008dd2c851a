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
	from, at int   // the first step of the current part, and the current step, as indexes of steps
	isBegun  bool  // the current part has begun
	hasBegun bool  // its first part has begun
}

// begin reports that the first step of a part begins.
func (n *nodeWalk) begin(w *walk) {
	if !n.isBegun {
		n.isBegun, n.hasBegun = true, true
		w.run.components.begin(w.run.order.nodeOf(n.steps[n.from]))
	}
}

// awaitPart waits, in an update, until all objects of a part are ready. A node may have several parts, since consecutive
// levels of one component each share a node.
func (n *nodeWalk) awaitPart(w *walk) {
	if w.run.options.Mode != graph.Update || w.run.options.NoWait {
		n.endPart(w, true)
		return
	}
	tasks := w.run.order.tasksOf(n.steps[:n.parts[0]])
	waits := slices.DeleteFunc(tasks, func(task int) bool { return w.run.order.isUnawaited[task] })
	w.await(waits, &parking{node: n})
}

// endPart goes on to the next part of a node, or ends the node.
func (n *nodeWalk) endPart(w *walk, isDone bool) {
	if n.isBegun {
		w.run.components.end(w.run.order.nodeOf(n.steps[n.from]), outcomeOf(isDone, w.ctx.Err() != nil))
	}
	switch {
	case !isDone:
		w.run.nodes.Done(n.node, graph.Failed)
	case len(n.parts) > 1:
		n.from, n.at, n.parts, n.isBegun = n.parts[0], n.parts[0], n.parts[1:], false
		w.queue(n)
		return
	default:
		w.run.nodes.Done(n.node, graph.OK)
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
