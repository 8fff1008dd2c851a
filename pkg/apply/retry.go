package apply

import (
	"context"
	"time"

	"github.com/runlevel/runlevel/pkg/apply/object"
)

// A result is what came of a try of a step.
type result struct {
	isDone bool
	retry  error // why it is to be tried again; nil if it is not
	began  time.Time
}

// try tries a step once, and notes what came of it.
func (r *run) try(ctx context.Context, i int) result {
	began := time.Now()
	if ctx.Err() != nil {
		return result{} // it was never its turn
	}
	isAhead := r.isAhead(i)
	change, err := r.act(r.order.steps[i].Manifest)
	if err == nil {
		r.done(i, change)
		return result{isDone: true}
	}
	if object.IsInterruption(err) && ctx.Err() != nil {
		err = object.CutOff{Cause: context.Cause(ctx)}
	}
	if ctx.Err() != nil || !isAhead && !r.applier.Heals(r.order.steps[i].Manifest, err) {
		r.failed(ctx, i, err)
		return result{}
	}
	return result{retry: err, began: began}
}
