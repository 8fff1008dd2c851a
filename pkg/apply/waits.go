package apply

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/reason"
)

// A Wait is something that is waited for.
type Wait struct {
	ID      kinds.ID      `json:"object"`
	File    string        `json:"file"`
	Node    string        `json:"node,omitempty"`
	For     string        `json:"for"`
	Since   time.Time     `json:"since"`         // by the server's clock
	Why     []string      `json:"why,omitempty"` // what keeps its pods
	Reason  string        `json:"reason,omitempty"`
	Effect  reason.Effect `json:"effect,omitempty"`
	IsRetry bool          `json:"retrying,omitempty"` // it is not applied yet: it failed, and is tried again

	manifest *payload.Manifest
}

// explained is all that is waited for now, with what keeps the pods of those that have some, and
// whoever the API server has called in vain, asked anew.
func (r *run) explained(ctx context.Context) []Wait {
	waits, objects := r.waits()
	r.explainAll(ctx, waits, objects)
	return waits
}

// waits is all that is waited for now: steps that are tried again, and then the objects that
// are not ready, which are returned as well.
func (r *run) waits() ([]Wait, []await.Object) {
	objects := r.tracker.Waiting()
	r.mu.Lock()
	defer r.mu.Unlock()
	var waits []Wait
	for _, i := range slices.Sorted(maps.Keys(r.retries)) {
		waits = append(waits, r.retries[i])
	}
	for _, o := range objects {
		waits = append(waits, r.waitFor(o))
	}
	return waits, objects
}

// remembered is all that is waited for now, with the reasons that were found when they were asked for last.
func (r *run) remembered(asked []Wait) []Wait {
	before := map[kinds.ID]Wait{}
	for _, wait := range asked {
		before[wait.ID] = wait
	}
	waits, _ := r.waits()
	for i := range waits {
		if last := before[waits[i].ID]; !waits[i].IsRetry || waits[i].For == last.For {
			waits[i].Why = last.Why
		}
	}
	return waits
}

// waitFor is the wait for an object.
func (r *run) waitFor(o await.Object) Wait {
	return Wait{
		ID: o.Manifest.ID(), File: o.Manifest.Path, Node: object.NodeName(o.Manifest), For: o.Verdict.Message,
		Since: r.cluster.At(o.Since).UTC(), Reason: o.Verdict.Reason, Effect: o.Verdict.Effect,
		manifest: o.Manifest,
	}
}

// tellWaits tells of waits from time to time, until the function that it returns is called.
func (r *run) tellWaits(ctx context.Context) (stop func()) {
	return now(ctx, func(ctx context.Context) {
		ticker := time.NewTicker(r.options.TellWaits)
		defer ticker.Stop()
		var asked []Wait
		next := time.Now().Add(r.options.AskWhy)
		for ctx.Err() == nil {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				continue
			}
			waits := r.remembered(asked)
			if now := time.Now(); !now.Add(r.options.TellWaits / 2).Before(next) { // else it would be a tick late
				waits = r.explained(ctx)
				asked, next = waits, now.Add(r.options.AskWhy)
			}
			if ctx.Err() != nil {
				continue // not all that could be asked was
			}
			for _, wait := range waits {
				r.tellWait(wait)
			}
		}
	})
}

// now begins to do something, which the function that it returns ends.
func now(ctx context.Context, do func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// tellWait tells of one wait, unless it is over: since somebody has looked, pods were asked and
// others were told of. Whoever hears of a wait hears of its end, too.
func (r *run) tellWait(wait Wait) {
	r.telling.Lock()
	defer r.telling.Unlock()
	if r.isOver(wait) {
		return
	}
	r.heard[wait.manifest] = true
	r.options.Tell(Event{
		Time: r.cluster.Now().UTC(), Type: Waiting, Object: &wait.ID, File: wait.File, Node: wait.Node,
		Reason: wait.Reason, Message: wait.For, Since: &wait.Since, Why: wait.Why,
	})
}

// isOver says whether a wait has ended.
func (r *run) isOver(wait Wait) bool {
	if !wait.IsRetry {
		return !r.tracker.IsWaiting(wait.manifest)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, retry := range r.retries {
		if retry.manifest == wait.manifest {
			return false
		}
	}
	return true
}

// finished notes that a Job has run to its end: it is not run again when it is removed.
func (r *run) finished(job *payload.Manifest, uid types.UID) {
	r.notes.Go(func() {
		if err := r.applier.RememberJob(job, uid); err != nil {
			r.warn(job, []string{"that it is done could not be noted, so it may run again: " + printable.Line(err.Error())})
		}
	})
}

// invisible tells at once that an object can't be watched.
func (r *run) invisible(o await.Object) { r.tellWait(r.waitFor(o)) }
