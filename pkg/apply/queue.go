package apply

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/apply/object"
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

// A line is steps that begin in the order in which they came.
type line struct{ steps []int }

func (l *line) add(steps ...int) { l.steps = append(l.steps, steps...) }

// A queue has the steps that may begin, in lines that follow each other.
type queue struct{ needed, continued, custom, usual, workloads line }

// take takes out the step that is to begin, if there is one.
func (q *queue) take() (step int, isThere bool) {
	for _, l := range []*line{&q.needed, &q.continued, &q.custom, &q.usual, &q.workloads} {
		if len(l.steps) > 0 {
			step, l.steps = l.steps[0], l.steps[1:]
			return step, true
		}
	}
	return 0, false
}

// lineOf returns where the first step of a node belongs: in the order of the files, but in an install.
func (q *queue) lineOf(r *run, node int) *line {
	first := r.order.graph.Nodes[node].Tasks[0]
	kind := r.order.steps[first].ID().GroupKind()
	switch {
	case r.options.Mode != graph.Install || r.order.steps[first].IsTombstone():
		return &q.usual
	case object.IsFoundation(kind):
		return &q.needed
	case slices.ContainsFunc(r.order.needs[first], r.order.isDefinition):
		return &q.custom
	case workloadKinds[kind] && len(r.order.graph.Nodes[node].Out) == 0:
		return &q.workloads
	default:
		return &q.usual
	}
}

func (o *order) isDefinition(step int) bool {
	return o.steps[step].ID().GroupKind() == kinds.CustomResourceDefinition
}
