package apply

import (
	"context"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A schedule decides which steps may begin. A node begins once no other node blocks it, and its steps are done one
// after the other, in parts: see order.partEnds. The schedule reports the begin and the end of each part to the
// components. Only the loop of the walk uses it.
type schedule struct {
	ctx        context.Context // context of the walk; no node begins after its end
	order      *order
	nodes      *graph.Walk
	before     *graph.Walk // the last walk, whose nodes are not repeated; nil if this walk is the first
	components *components

	nodeOf    map[int]*nodeWalk // keyed by step
	continued []int             // queued steps of nodes that have begun
	fresh     []int             // queued first steps of other nodes, which come after them
}

// A nodeWalk is the progress of one node.
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
func (s *schedule) beginNodes() {
	for nodes := s.nodes.Ready(); len(nodes) > 0; nodes = s.nodes.Ready() {
		for _, node := range nodes {
			if s.before != nil && s.before.State(node) == graph.OK {
				s.nodes.Done(node, graph.OK)
			} else if s.ctx.Err() == nil {
				s.beginNode(node)
			}
		}
	}
}

func (s *schedule) beginNode(node int) {
	n := &nodeWalk{node: node, steps: s.order.nodes[node], parts: s.order.partEnds(s.order.nodes[node])}
	for _, step := range n.steps {
		s.nodeOf[step] = n
	}
	s.queueCurrent(n)
}

// queueCurrent queues the current step of a node.
func (s *schedule) queueCurrent(n *nodeWalk) {
	step := n.steps[n.current]
	if n.hasBegun {
		s.requeue(step)
	} else {
		s.fresh = append(s.fresh, step)
	}
}

// requeue queues a step whose wait is over.
func (s *schedule) requeue(step int) { s.continued = append(s.continued, step) }

// next removes the next step from the queue.
func (s *schedule) next() (step int, exists bool) {
	steps := &s.continued
	if len(s.continued) == 0 {
		steps = &s.fresh
	}
	if len(*steps) == 0 {
		return 0, false
	}
	step, *steps = (*steps)[0], (*steps)[1:]
	return step, true
}

// empty removes all steps from the queue, and passes those of nodes that have begun to a function.
func (s *schedule) empty(skip func(step int)) {
	for len(s.continued) > 0 {
		step, _ := s.next()
		skip(step)
	}
	s.fresh = nil
}

// beginStep notes that a step begins, and reports the first one of a part.
func (s *schedule) beginStep(step int) {
	if n := s.nodeOf[step]; !n.isBegun {
		n.isBegun, n.hasBegun = true, true
		s.components.begin(s.order.componentOf(n.steps[n.first]))
	}
}

// endStep continues the node of a step: with its next step, or with the next nodes if the step has failed. After the
// last step of a part it returns the node: endPart continues that one.
func (s *schedule) endStep(step int, isDone bool) (ofPart *nodeWalk) {
	n := s.nodeOf[step]
	n.current++
	switch {
	case !isDone:
		s.endPart(n, false)
	case n.current < n.parts[0]:
		s.queueCurrent(n)
	default:
		return n
	}
	return nil
}

// endPart continues with the next part of a node, or ends the node.
func (s *schedule) endPart(n *nodeWalk, isDone bool) {
	if n.isBegun {
		s.components.end(s.order.componentOf(n.steps[n.first]), outcomeOf(isDone, s.ctx.Err() != nil))
	}
	switch {
	case !isDone:
		s.nodes.Done(n.node, graph.Failed)
	case len(n.parts) > 1:
		n.first, n.current, n.parts, n.isBegun = n.parts[0], n.parts[0], n.parts[1:], false
		s.queueCurrent(n)
		return
	default:
		s.nodes.Done(n.node, graph.OK)
	}
	s.beginNodes()
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
