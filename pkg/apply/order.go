package apply

import (
	"slices"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A step is a manifest at its place in the order. It may stand at that of another file:
// see hoist.
type step struct {
	*payload.Manifest
	file string
}

// File is where it stands.
func (s step) File() string { return s.file }

// An order is the graph of a payload, and what it can't keep.
type order struct {
	graph *graph.Graph
	steps []step  // the tasks of the graph
	needs [][]int // by step: the steps whose objects must be ready before
	// starts are, by step, the first of those that it is done side by side with.
	starts []int
	// late are steps whose objects can't be ready before something that comes later is
	// there: nothing in between waits for them.
	late []bool
}

// newOrder orders manifests. A definition or a Namespace that the cluster does not have
// yet, and that comes after what needs it, is moved before that: in the order of the
// files neither could ever be applied.
func newOrder(manifests []*payload.Manifest, options graph.Options, isThere func(*payload.Manifest) (bool, error)) (*order, error) {
	steps := make([]step, len(manifests))
	for i, manifest := range manifests {
		steps[i] = step{manifest, manifest.File()}
	}
	options.Implied = true
	g := graph.Build(steps, options)
	steps, moved, err := hoist(steps, g.Conflicts, isThere)
	if err != nil {
		return nil, err
	}
	if moved {
		g = graph.Build(steps, options)
	}
	o := &order{graph: g, steps: steps, needs: make([][]int, len(steps)), late: make([]bool, len(steps))}
	o.starts = rowStarts(g, steps, options.Mode)
	for _, dependency := range g.Implied {
		o.needs[dependency.Task] = append(o.needs[dependency.Task], dependency.Needs)
	}
	for _, dependency := range g.Conflicts {
		o.late[dependency.Task] = true
	}
	return o, nil
}

// hoist moves what others need, and the cluster does not have, to before the first that
// needs it.
func hoist(steps []step, conflicts []graph.Dependency, isThere func(*payload.Manifest) (bool, error)) ([]step, bool, error) {
	first := map[int]int{} // by step that is to be moved: the one it is to be before
	for _, conflict := range conflicts {
		if !object.IsFoundation(steps[conflict.Needs].GroupVersionKind().GroupKind()) {
			continue
		}
		if before, known := first[conflict.Needs]; known {
			first[conflict.Needs] = min(before, conflict.Task)
			continue
		}
		there, err := isThere(steps[conflict.Needs].Manifest)
		if err != nil {
			return nil, false, err
		}
		if !there {
			first[conflict.Needs] = conflict.Task
		}
	}
	if len(first) == 0 {
		return steps, false, nil
	}
	ahead := map[int][]step{}
	for needed, before := range first {
		ahead[before] = append(ahead[before], step{steps[needed].Manifest, steps[before].file})
	}
	ordered := make([]step, 0, len(steps))
	for i, one := range steps {
		slices.SortFunc(ahead[i], func(a, b step) int { return payload.InOrder(a.Manifest, b.Manifest) })
		ordered = append(ordered, ahead[i]...)
		if _, isMoved := first[i]; !isMoved {
			ordered = append(ordered, one)
		}
	}
	return ordered, true, nil
}
