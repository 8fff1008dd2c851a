package rollout

import (
	"context"
	"time"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/inventory"
)

// A Keeper keeps in place what is applied.
type Keeper interface {
	// Take takes over an object that the apply is done with.
	Take(object.Change)
	// Wait returns when nothing is kept any more, since its context has ended.
	Wait() error
}

// keep applies the payload, and keeps in place what is applied: each object from the moment on that
// the apply is done with it.
func (r *rollout) keep(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	options := r.applyOptions()
	options.Fingerprints = inventory.ReadFingerprints(nil)
	keeper := r.options.Keep(ctx, r.cluster, options)
	options.Done, options.Late = keeper.Take, func(report *apply.Report) {
		r.tell(r.finish(ctx, report))
		r.isLate = true
	}
	err := r.finish(ctx, apply.Run(ctx, r.cluster, r.payload, r.before, options))
	if err != nil {
		stop()
		_ = keeper.Wait()
		return err
	}
	r.tell(nil)
	return keeper.Wait()
}

// tell tells the outcome until now.
func (r *rollout) tell(err error) {
	r.outcome.Err, r.outcome.Took = err, time.Since(r.began)
	r.options.Told(r.outcome)
}
