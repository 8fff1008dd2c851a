package session

import (
	"context"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// applyAndKeep applies the payload, and keeps each object in place from the moment on that the apply is done
// with it. The outcome is reported when everything is ready, and before that, once, when it is not ready in time.
func (r *run) applyAndKeep(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	options, keeping := r.applyOptions(), *r.options.Keep
	defer startRepairLog(ctx, r, &keeping).end(ctx)
	defer stop()
	options.Fingerprints = fingerprint.Read(nil)
	keeping.Apply, keeping.WasComplete = options.Objects(), r.outcome.IsSame && r.outcome.Mode == graph.Reconcile
	keeper := keep.Start(ctx, r.cluster, r.payload, keeping)
	r.onKeep(keeper)
	options.Done, options.NotReady = keeper.Take, func(report *apply.Report) {
		r.reportOutcome(ctx, r.finish(ctx, report))
		keeper.Announce()
		r.isLate = true
	}
	err := r.finish(ctx, apply.Run(ctx, r.cluster, r.payload, r.before, options))
	if err != nil {
		stop()
		_ = keeper.Wait()
		return err
	}
	r.reportOutcome(ctx, nil)
	if !r.isLate {
		keeper.Announce()
	}
	return keeper.Wait()
}

// reportOutcome calls OnOutcome with the outcome until now.
func (r *run) reportOutcome(ctx context.Context, err error) {
	r.outcome.Err, r.outcome.Took = err, time.Since(r.began)
	r.notifier.report(ctx, r.notifier.ended())
	if r.options.OnOutcome != nil {
		r.options.OnOutcome(r.outcome)
	}
}
