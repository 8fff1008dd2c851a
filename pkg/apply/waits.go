package apply

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// A Wait is an object or a step that the run waits for.
type Wait struct {
	ID      kinds.ID      `json:"object"`
	Hook    string        `json:"hook,omitempty"` // stage of the object's lifecycle hook, if the hook waits
	File    string        `json:"file"`
	Node    string        `json:"node,omitempty"`
	For     string        `json:"for"`
	Since   time.Time     `json:"since"`         // by the server's clock
	Why     []string      `json:"why,omitempty"` // why its pods do not become ready
	Reason  string        `json:"reason,omitempty"`
	Effect  reason.Effect `json:"effect,omitempty"`
	IsRetry bool          `json:"retrying,omitempty"` // the step has failed, and is tried again

	step     object.StepID
	isOfStep bool // the step waits, and is not done
}

// waitOf returns a wait of a step.
func waitOf(step object.StepID) Wait {
	return Wait{ID: step.ID, Hook: step.Hook, File: step.Path, Node: step.Node, step: step}
}

// Name names the object or hook that waits.
func (w Wait) Name() string { return w.ID.OrHook(w.Hook) }

// waits are what a run waits for: steps that wait or are tried again, and objects that are not ready.
type waits struct {
	cluster               *cluster.Cluster
	tracker               *await.Tracker
	results               *results
	explainer             *explainer
	reportEvery, askEvery time.Duration
}

// all returns the present waits: of steps that wait or are tried again, and then of the objects that are not ready, which
// are returned as well.
func (w *waits) all() ([]Wait, []await.Object) {
	objects := w.tracker.Waiting()
	w.results.mu.Lock()
	var all []Wait
	for _, i := range slices.Sorted(maps.Keys(w.results.waits)) {
		all = append(all, w.results.waits[i])
	}
	w.results.mu.Unlock()
	for _, o := range objects {
		all = append(all, w.of(o))
	}
	return all, objects
}

// of returns the wait for an object.
func (w *waits) of(o await.Object) Wait {
	wait := waitOf(object.StepOf(o.Manifest))
	wait.For, wait.Since, wait.Reason, wait.Effect = o.Verdict.Message, w.cluster.ServerTime(o.Since).UTC(), o.Verdict.Reason, o.Verdict.Effect
	return wait
}

// stepWaits notes the wait of a step, and reports a new wait at once.
func (w *waits) stepWaits(place int, step object.StepID, what *object.StepWait) {
	if wait, isNew := w.results.waiting(place, step, what, w.cluster.Now()); isNew {
		w.report(wait)
	}
}

// explained returns the present waits, with a diagnosis of the pods, or of the server that the API server could not call.
func (w *waits) explained(ctx context.Context) []Wait {
	all, objects := w.all()
	w.explainer.explain(ctx, all, objects)
	return all
}

// cached returns the present waits, with the last diagnosis.
func (w *waits) cached(explained []Wait) []Wait {
	before := map[object.StepID]Wait{}
	for _, wait := range explained {
		before[wait.step] = wait
	}
	all, _ := w.all()
	for i := range all {
		if last := before[all[i].step]; !all[i].isOfStep && (!all[i].IsRetry || all[i].For == last.For) {
			all[i].Why = last.Why
		}
	}
	return all
}

// reportAll reports waits from time to time, until stop is called.
func (w *waits) reportAll(ctx context.Context) (stop func()) {
	return inBackground(ctx, func(ctx context.Context) {
		ticker := time.NewTicker(w.reportEvery)
		defer ticker.Stop()
		var explained []Wait
		next := time.Now().Add(w.askEvery)
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			all := w.cached(explained)
			if now := time.Now(); !now.Add(w.reportEvery / 2).Before(next) { // the next tick would be too late
				all = w.explained(ctx)
				explained, next = all, now.Add(w.askEvery)
			}
			if ctx.Err() != nil {
				return // the diagnosis may be incomplete
			}
			for _, wait := range all {
				w.report(wait)
			}
		}
	})
}

// inBackground runs a function until stop is called.
func inBackground(ctx context.Context, do func(context.Context)) (stop func()) {
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

func (w *waits) report(wait Wait) { w.results.events.waiting(wait, w.hasEnded) }

func (w *waits) hasEnded(wait Wait) bool {
	if wait.IsRetry || wait.isOfStep {
		return !w.results.isWaiting(wait)
	}
	return !w.tracker.IsWaiting(wait.ID)
}
