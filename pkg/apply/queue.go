package apply

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/kinds"
)

// In an install nearly everything may begin at once, and what begins first decides how long all
// of it takes. Custom resources come as soon as their definition is served: the server has to
// learn about it with the first of them, which takes longer than any other answer. What runs pods
// comes last: its controllers keep the server busy while the rest is still to be written, and its
// pods would wait for what they mount.

// A lane is when a node's turn is.
type lane int

const (
	customLane lane = iota // once its definition is served, or there is nothing else
	usualLane
	workloadLane
	lanes
)

// workloadKinds are those whose objects run pods.
var workloadKinds = map[schema.GroupKind]bool{
	{Kind: "Pod"}:                        true,
	{Kind: "ReplicationController"}:      true,
	{Group: "apps", Kind: "DaemonSet"}:   true,
	{Group: "apps", Kind: "Deployment"}:  true,
	{Group: "apps", Kind: "ReplicaSet"}:  true,
	{Group: "apps", Kind: "StatefulSet"}: true,
	{Group: "batch", Kind: "CronJob"}:    true,
}

// A queue has the nodes that may begin. The nodes of a lane keep their order.
type queue struct {
	nodes    [lanes][]int
	laneOf   func(node int) lane
	mayBegin func(node int) bool // asked for custom resources
	turn     lane                // of the node that next has said
}

func (r *run) newQueue() *queue {
	return &queue{laneOf: r.laneOf, mayBegin: func(node int) bool {
		return !slices.ContainsFunc(r.order.needs[r.order.first(node)], func(needed int) bool {
			return r.follow.isWaiting(r.order.steps[needed].Manifest)
		})
	}}
}

func (q *queue) add(nodes []int) {
	for _, node := range nodes {
		lane := q.laneOf(node)
		q.nodes[lane] = append(q.nodes[lane], node)
	}
}

// next is the node whose turn it is, if there is any; drop takes it out.
func (q *queue) next() (node int, isThere bool) {
	turns := []lane{usualLane, workloadLane, customLane}
	if custom := q.nodes[customLane]; len(custom) > 0 && q.mayBegin(custom[0]) {
		turns = []lane{customLane}
	}
	for _, q.turn = range turns {
		if nodes := q.nodes[q.turn]; len(nodes) > 0 {
			return nodes[0], true
		}
	}
	return 0, false
}

func (q *queue) drop() { q.nodes[q.turn] = q.nodes[q.turn][1:] }

// laneOf says when it is a node's turn: in the order of the files, but in an install. What
// others wait for is never late.
func (r *run) laneOf(node int) lane {
	first := r.order.first(node)
	switch {
	case r.options.Mode != graph.Install:
		return usualLane
	case slices.ContainsFunc(r.order.needs[first], r.order.isDefinition):
		return customLane
	case workloadKinds[r.order.steps[first].ID().GroupKind()] && len(r.order.graph.Nodes[node].Out) == 0:
		return workloadLane
	default:
		return usualLane
	}
}

// first is the first step of a node.
func (o *order) first(node int) int { return o.graph.Nodes[node].Tasks[0] }

func (o *order) isDefinition(step int) bool {
	return o.steps[step].ID().GroupKind() == kinds.CustomResourceDefinition
}
