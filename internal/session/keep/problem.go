package keep

import (
	"cmp"
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// Problems returns the objects that are contested or failing now, as they were reported, in order. A nil Keeper has
// none.
func (k *Keeper) Problems() []Event {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var problems []Event
	for _, o := range k.inOrder {
		if o.problem != nil {
			problems = append(problems, *o.problem)
		}
	}
	slices.SortFunc(problems, func(a, b Event) int {
		return cmp.Or(kinds.Compare(*a.Object, *b.Object), cmp.Compare(a.File, b.File))
	})
	return problems
}

// UnwatchedKinds returns how many kinds have changes that are not seen now.
func (k *Keeper) UnwatchedKinds() int {
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	unwatched := 0
	for _, w := range k.watches {
		if len(w.errs) > 0 {
			unwatched++
		}
	}
	return unwatched
}

// report reports a problem of an object, which lasts until endProblem finds that it is over.
func (k *Keeper) report(o *objectState, problem Event) {
	problem.Time = k.cluster.Now().UTC()
	k.mu.Lock()
	o.problem = &problem
	k.mu.Unlock()
	k.emit(problem)
}

// endProblem reports that the problem of an object is over, if it is: the object matches the release, and no other
// writer has changed it for a while.
func (k *Keeper) endProblem(o *objectState) {
	k.mu.Lock()
	remaining := o.contention.left(time.Now())
	isOver := o.problem != nil && !o.mayDiffer && !o.isTerminating && !k.failing[o] && remaining <= 0
	switch {
	case isOver:
		o.problem, o.contention = nil, contention{}
	case o.problem != nil && remaining > 0:
		k.queue.AddAfter(o, remaining)
	}
	k.mu.Unlock()
	if isOver {
		k.emit(Event{Type: Recovered, Object: &o.id, File: o.manifest.Path, Message: "it matches the release again"})
	}
}
