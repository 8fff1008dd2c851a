package apply

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/kinds"
)

// In an install nearly everything may begin at once, and what begins first decides how long all
// of it takes. What others wait for comes first. Custom resources come as soon as their definition
// is served: the server has to learn about it with the first of them, which takes longer than any
// other answer. What runs pods comes last: its controllers keep the server busy while the rest is
// still to be written, and its pods would wait for what they mount.

// workloadKinds are those whose objects run pods, but for Jobs: nothing overtakes those.
var workloadKinds = map[schema.GroupKind]bool{
	{Kind: "Pod"}:                        true,
	{Kind: "ReplicationController"}:      true,
	{Group: "apps", Kind: "DaemonSet"}:   true,
	{Group: "apps", Kind: "Deployment"}:  true,
	{Group: "apps", Kind: "ReplicaSet"}:  true,
	{Group: "apps", Kind: "StatefulSet"}: true,
	{Group: "batch", Kind: "CronJob"}:    true,
}

// A line is nodes that begin in the order in which they came.
type line struct{ nodes []int }

// take takes out the first.
func (l *line) take() { l.nodes = l.nodes[1:] }

// A queue has the nodes that may begin, in lines that follow each other.
type queue struct {
	needed, usual, workloads line
	custom                   map[int]*line // by the step of their definition
	definitions              []int         // those, in the order in which they came
	isServed                 func(definition int) bool
}

func newQueue(isServed func(definition int) bool) *queue {
	return &queue{custom: map[int]*line{}, isServed: isServed}
}

// customOf is the line of the custom resources of a definition.
func (q *queue) customOf(definition int) *line {
	if q.custom[definition] == nil {
		q.custom[definition] = &line{}
		q.definitions = append(q.definitions, definition)
	}
	return q.custom[definition]
}

// next is the line whose first node is to begin; nil if all are empty. Custom resources whose
// definition is not served are begun when there is nothing else: somebody has to wait for it.
func (q *queue) next() *line {
	inTurn := []*line{&q.needed}
	var rest []*line
	for _, definition := range q.definitions {
		if at := q.custom[definition]; len(at.nodes) > 0 && q.isServed(definition) {
			inTurn = append(inTurn, at)
		} else {
			rest = append(rest, at)
		}
	}
	for _, one := range append(append(inTurn, &q.usual, &q.workloads), rest...) {
		if len(one.nodes) > 0 {
			return one
		}
	}
	return nil
}

// enqueue puts a node where its first step belongs: in the order of the files, but in an install.
func (r *run) enqueue(q *queue, node int) {
	at := &q.usual
	if first := r.order.graph.Nodes[node].Tasks[0]; r.options.Mode == graph.Install && !r.order.steps[first].IsTombstone() {
		definition := slices.IndexFunc(r.order.needs[first], r.order.isDefinition)
		kind := r.order.steps[first].ID().GroupKind()
		switch {
		case isFoundation(kind):
			at = &q.needed
		case definition >= 0:
			at = q.customOf(r.order.needs[first][definition])
		case workloadKinds[kind] && len(r.order.graph.Nodes[node].Out) == 0:
			at = &q.workloads
		}
	}
	at.nodes = append(at.nodes, node)
}

// isServed says whether a definition has become ready.
func (r *run) isServed(definition int) bool {
	return !r.follow.isWaiting(r.order.steps[definition].Manifest)
}

func (o *order) isDefinition(step int) bool {
	return o.steps[step].ID().GroupKind() == kinds.CustomResourceDefinition
}
