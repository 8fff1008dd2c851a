package apply

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A node of the graph may hold several levels of one component each, and what others need
// cuts the manifests of a component into several nodes. People know levels and components:
// they are told when the first manifest of one begins, and when the last has ended.

// nodes are the components of levels as people know them, by their names.
type nodes struct {
	mu   sync.Mutex
	told map[string]*progress
	took map[string]time.Duration // of those that are done
}

// A progress is how far a component of a level is.
type progress struct {
	left, running int // of its pieces
	began         time.Time
	hasBegun      bool
	outcome       object.Action // what came of it, where it is not all done
}

// newNodes counts the pieces of each.
func newNodes(o *order) *nodes {
	n := &nodes{told: map[string]*progress{}, took: map[string]time.Duration{}}
	for _, node := range o.graph.Nodes {
		for _, end := range o.pieces(node.Tasks) {
			n.of(o.place(node.Tasks[end-1])).left++
		}
	}
	return n
}

func (n *nodes) of(name string) *progress {
	if n.told[name] == nil {
		n.told[name] = &progress{}
	}
	return n.told[name]
}

// begin notes that a piece begins, and says whether it is the first of its node.
func (n *nodes) begin(name string) (isFirst bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.of(name)
	p.running++
	if p.hasBegun {
		return false
	}
	p.hasBegun, p.outcome = true, ""
	if p.began.IsZero() {
		p.began = time.Now()
	}
	return true
}

// end notes what came of a piece, "" if it is done, and says whether its node has ended
// with it: what came of that, and how long it took.
func (n *nodes) end(name string, outcome object.Action) (whole object.Action, took time.Duration, isLast bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.of(name)
	p.running--
	p.left--
	if p.outcome != object.Failed && outcome != "" {
		p.outcome = outcome
	}
	if p.running > 0 || p.left > 0 && p.outcome == "" {
		return "", 0, false
	}
	p.hasBegun = false
	took = time.Since(p.began)
	if p.outcome == "" {
		n.took[name] = took
	}
	return p.outcome, took, true
}

// durations say how long each took that is done.
func (n *nodes) durations() map[string]time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.took)
}

// beginPiece notes that a piece of a component begins. Files whose names say no level are in no node that
// people know.
func (r *run) beginPiece(name string) {
	if name != "" && r.nodes.begin(name) {
		r.tellNode(Event{Type: Began, Node: name})
	}
}

// endPiece notes that a piece has ended.
func (r *run) endPiece(ctx context.Context, name string, isDone bool) {
	if name == "" {
		return
	}
	var outcome object.Action
	switch {
	case isDone:
	case ctx.Err() != nil:
		outcome = object.NotDone
	default:
		outcome = object.Failed
	}
	if whole, took, isLast := r.nodes.end(name, outcome); isLast {
		r.tellNode(Event{Type: Ended, Node: name, Action: whole, Seconds: took.Round(time.Millisecond).Seconds()})
	}
}

// tellNode tells of a node.
func (r *run) tellNode(event Event) {
	event.Time = r.cluster.Now().UTC()
	r.telling.Lock()
	defer r.telling.Unlock()
	r.options.Tell(event)
}

// pieces are where the tasks of a node change from one level or component to the next, and
// where they end.
func (o *order) pieces(steps []int) []int {
	var ends []int
	for i := range steps {
		if i+1 == len(steps) || o.place(steps[i]) != o.place(steps[i+1]) {
			ends = append(ends, i+1)
		}
	}
	return ends
}

// place names the level and the component where a step stands.
func (o *order) place(step int) string { return graph.ParseName(o.steps[step].file).Words() }
