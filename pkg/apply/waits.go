package apply

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
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

	step object.StepID
}

// waits are what a run waits for: steps that are tried again, and objects that are not ready.
type waits struct {
	cluster             *cluster.Cluster
	tracker             *await.Tracker
	results             *results
	explainer           *explainer
	tellEvery, askEvery time.Duration
}

// all returns everything that is waited for now: steps that are tried again, and then the objects that are not ready,
// which are returned as well.
func (w *waits) all() ([]Wait, []await.Object) {
	objects := w.tracker.Waiting()
	w.results.mu.Lock()
	var all []Wait
	for _, i := range slices.Sorted(maps.Keys(w.results.retries)) {
		all = append(all, w.results.retries[i])
	}
	w.results.mu.Unlock()
	for _, o := range objects {
		all = append(all, w.of(o))
	}
	return all, objects
}

// of returns the wait for an object.
func (w *waits) of(o await.Object) Wait {
	step := object.StepOf(o.Manifest)
	return Wait{
		ID: step.ID, File: step.Path, Node: step.Node, For: o.Verdict.Message,
		Since: w.cluster.ServerTime(o.Since).UTC(), Reason: o.Verdict.Reason, Effect: o.Verdict.Effect, step: step,
	}
}

// explained returns everything that is waited for now, each with why it is not ready, as far as pods, or what the API
// server has called in vain, can say so.
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
		if last := before[all[i].step]; !all[i].IsRetry || all[i].For == last.For {
			all[i].Why = last.Why
		}
	}
	return all
}

// reportAll reports waits from time to time, until the function that it returns is called.
func (w *waits) reportAll(ctx context.Context) (stop func()) {
	return inBackground(ctx, func(ctx context.Context) {
		ticker := time.NewTicker(w.tellEvery)
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
			if now := time.Now(); !now.Add(w.tellEvery / 2).Before(next) { // else it would be a tick late
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
	if !wait.IsRetry {
		return !w.tracker.IsWaiting(wait.ID)
	}
	w.results.mu.Lock()
	defer w.results.mu.Unlock()
	for _, retry := range w.results.retries {
		if retry.step == wait.step {
			return false
		}
	}
	return true
}
