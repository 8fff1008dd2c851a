package keep

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/printable"
)

// A finding is what the slow pass finds of an object.
type finding int

const (
	wasFine   finding = iota
	wasMissed         // it was not as it should, and nobody had told
	wasBroken         // it can't be repaired
)

// auditPace is the least time between two objects of the slow pass: it is nobody's haste.
const auditPace = 20 * time.Millisecond

// pass looks at all objects from time to time, whatever the watches say of them.
func (k *Keeper) pass(ctx context.Context) {
	if k.options.Every < 0 {
		return
	}
	const spread = 0.1 // so that several don't do it at once
	for object.Pause(ctx, wait.Jitter(k.options.Every, spread)) {
		missed, looked := 0, 0
		for _, o := range k.kept() {
			found, ok := k.auditOne(ctx, o)
			if !ok {
				return
			}
			looked++
			if found == wasMissed {
				missed++
				k.tell(Event{Type: Missed, Object: &o.id, File: o.manifest.Path, Message: "no watch had told that it was not as the release says"})
			}
		}
		k.tell(Event{Type: Passed, Message: fmt.Sprintf("looked at %s, of which the watches had missed %d", printable.Count(looked, "object"), missed)})
	}
}

// kept returns the objects that are kept by now.
func (k *Keeper) kept() []*kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.inOrder)
}

// auditOne has an object looked at, whatever the watches say of it.
func (k *Keeper) auditOne(ctx context.Context, o *kept) (found finding, ok bool) {
	answer := make(chan finding, 1)
	k.mu.Lock()
	o.audit = answer
	k.queue.Add(o)
	k.mu.Unlock()
	select {
	case found = <-answer:
	case <-ctx.Done():
		return found, false
	}
	return found, object.Pause(ctx, auditPace)
}
