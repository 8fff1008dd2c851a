package keep

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// resyncPace is the least time between two objects of a resync, which is not waited for.
const resyncPace = 20 * time.Millisecond

// resyncAll checks all objects from time to time, whatever the watches have shown.
func (k *Keeper) resyncAll(ctx context.Context) {
	if k.options.Every < 0 {
		return
	}
	const spread = 0.1 // so that several Keepers don't do it at once
	for object.Pause(ctx, wait.Jitter(k.options.Every, spread)) {
		missed, checked := 0, 0
		objects := k.lock()
		all := slices.Clone(objects.kept)
		objects.unlock()
		for _, o := range all {
			wasMissed, ok := k.resync(ctx, o)
			if !ok {
				return
			}
			checked++
			if wasMissed {
				missed++
				k.emit(Event{
					Type:    Missed,
					Object:  &o.id,
					File:    o.manifest.Path,
					Message: "it differed from the release, and no watch had shown it",
				})
			}
		}
		k.emit(Event{
			Type: Passed,
			Message: fmt.Sprintf("checked %s, of which the watches had missed %d", printable.Count(checked, "object"),
				missed),
		})
	}
}

// resync checks one object, and reports whether it differed and no watch had shown that.
func (k *Keeper) resync(ctx context.Context, o *objectState) (wasMissed, ok bool) {
	answer := make(chan bool, 1)
	objects := k.lock()
	o.checked = answer
	k.queue.Add(o)
	objects.unlock()
	select {
	case wasMissed = <-answer:
	case <-ctx.Done():
		return false, false
	}
	return wasMissed, object.Pause(ctx, resyncPace)
}
