package session

import (
	"context"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// applyAndKeep applies the payload, and keeps each object in place as soon as the apply is done with it. The outcome
// is reported when everything is ready, and before that, once, when it is not ready in time.
func (r *run) applyAndKeep(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	options, keeping := r.applyOptions(), *r.options.Keep
	defer r.startRepairLog(ctx, &keeping).end(ctx)
	defer stop()
	options.Fingerprints = fingerprint.Read(nil)
	keeping.Apply, keeping.WasComplete = options.Options, r.outcome.IsSame && r.outcome.Mode == graph.Reconcile
	kept := &keptRun{Keeper: keep.Start(ctx, r.cluster, r.payload, keeping), run: r, ctx: ctx}
	r.onKeep(kept.Keeper)
	options.Keeper = kept
	if err := r.finish(ctx, apply.Run(ctx, r.cluster, r.payload, r.before, options)); err != nil {
		stop()
		_ = kept.Wait()
		return err
	}
	r.reportOutcome(ctx, nil)
	if !r.isLate {
		kept.Announce()
	}
	return kept.Wait()
}

// A keptRun is the Keeper of a run: it takes over the objects that are applied.
type keptRun struct {
	*keep.Keeper
	run *run
	ctx context.Context
}

// NotReady reports the outcome when not all objects are ready in time.
func (k *keptRun) NotReady(report *apply.Report) {
	k.run.reportOutcome(k.ctx, k.run.finish(k.ctx, report))
	k.Announce()
	k.run.isLate = true
}

// reportOutcome reports the outcome until now to the receivers of notifications, and to the Observer.
func (r *run) reportOutcome(ctx context.Context, err error) {
	r.outcome.Err, r.outcome.Took = err, time.Since(r.began)
	r.notifier.report(ctx, r.notifier.ended())
	r.options.Observer.OnOutcome(r.outcome)
}
