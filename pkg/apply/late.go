package apply

import (
	"context"
	"slices"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A run whose objects are kept in place does not end when the time is up, or when an object has
// failed: it tells so once, and then walks the graph a second time. That does what is not done, and
// waits for what is not ready, however long it takes.

// mayBeLate says whether a run may go on that would have to end: its context has not ended, and no
// object was refused.
func (r *run) mayBeLate(ctx context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	isRefused := func(change object.Change) bool { return change.Err != nil && change.Err.IsFinal }
	return r.options.Late != nil && ctx.Err() == nil && !slices.ContainsFunc(r.changes, isRefused)
}

// late tells how the run stands at the end of its time, and makes it one that goes on. Objects that
// have failed may be ready later: a pod starts once its image is there, and a Job that was deleted is
// made again.
func (r *run) late(ctx context.Context) {
	report := r.report(ctx)
	if report.Left != nil {
		report.Left.Ended, r.lateFor = false, report.Left.Error
	}
	r.options.Late(report)
	r.tracker.TolerateFailures()
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.unready)
	for i := range r.changes {
		if r.changes[i].Action == object.Failed {
			r.changes[i] = object.Change{Manifest: r.changes[i].Manifest, Action: object.NotDone}
		}
	}
}

// begin gives out the nodes that are ready. Those that an earlier walk has finished are not walked
// again.
func (r *run) begin() (nodes []int) {
	r.walking.Lock()
	defer r.walking.Unlock()
	for ready := r.walked.Ready(); len(ready) > 0; ready = r.walked.Ready() {
		for _, node := range ready {
			if r.earlier != nil && r.earlier.State(node) == graph.OK {
				r.walked.Done(node, graph.OK)
			} else {
				nodes = append(nodes, node)
			}
		}
	}
	return nodes
}

// isDone says whether a step was done.
func (r *run) isDone(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes[i].Action != object.NotDone && r.changes[i].Action != object.Failed
}
