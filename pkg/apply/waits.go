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

// A Wait is something that is waited for.
type Wait struct {
	ID      kinds.ID      `json:"object"`
	Hook    string        `json:"hook,omitempty"` // of the object, if it is its lifecycle hook that waits
	File    string        `json:"file"`
	Node    string        `json:"node,omitempty"`
	For     string        `json:"for"`
	Since   time.Time     `json:"since"`         // by the server's clock
	Why     []string      `json:"why,omitempty"` // what keeps its pods
	Reason  string        `json:"reason,omitempty"`
	Effect  reason.Effect `json:"effect,omitempty"`
	IsRetry bool          `json:"retrying,omitempty"` // it is not applied yet: it failed, and is tried again

	step     object.StepID
	isOfStep bool // the step itself waits: it is not done
}

// waitOf returns a wait of a step.
func waitOf(step object.StepID) Wait {
	return Wait{ID: step.ID, Hook: step.Hook, File: step.Path, Node: step.Node, step: step}
}

// Name names what waits in words.
func (w Wait) Name() string { return w.ID.OrHook(w.Hook) }

// waits are what a run waits for: steps that wait or are tried again, and objects that are not ready.
type waits struct {
	cluster               *cluster.Cluster
	tracker               *await.Tracker
	results               *results
	explainer             *explainer
	reportEvery, askEvery time.Duration
}

// all returns everything that is waited for now: steps that wait or are tried again, and then the objects that are not
// ready, which are returned as well.
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

// stepWaits notes what a step waits for, and reports it at once if that is new.
func (w *waits) stepWaits(place int, step object.StepID, what *object.StepWait) {
	if wait, isNew := w.results.waiting(place, step, what, w.cluster.Now()); isNew {
		w.report(wait)
	}
}

// explained returns everything that is waited for now, each with why it is not ready, as far as pods, or what the API
// server has called in vain, can be reported.
func (w *waits) explained(ctx context.Context) []Wait {
	all, objects := w.all()
	w.explainer.explain(ctx, all, objects)
	return all
}

// cached returns everything that is waited for now, with the explanations that were found before.
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

// reportAll reports waits from time to time, until the function that it returns is called.
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
			if now := time.Now(); !now.Add(w.reportEvery / 2).Before(next) { // else it would be a tick late
				all = w.explained(ctx)
				explained, next = all, now.Add(w.askEvery)
			}
			if ctx.Err() != nil {
				return // not all that could be asked was
			}
			for _, wait := range all {
				w.report(wait)
			}
		}
	})
}

// inBackground begins to do something, which the function that it returns ends.
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

// report reports one wait, unless it has ended.
func (w *waits) report(wait Wait) { w.results.events.waiting(wait, w.hasEnded) }

func (w *waits) hasEnded(wait Wait) bool {
	if wait.IsRetry || wait.isOfStep {
		return !w.results.isWaiting(wait)
	}
	return !w.tracker.IsWaiting(wait.ID)
}
