package keep

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// A contention counts how often another field manager or a controller reverts the repairs of an object. A user who
// changes the object now and then is not in contention.
type contention struct {
	driftedAt  time.Time   // time of the first observation of a difference
	repairedAt time.Time   // time of the last repair
	repairs    []time.Time // times of recent repairs
	immediate  int         // number of repairs that were reverted at once
	idle       int         // number of consecutive writes of the object that changed nothing of the release's
	idleAt     time.Time   // time of the last such write
	until      time.Time   // end of the pause before the next repair
}

const (
	// A drift within this time after a repair is immediate: a controller reverts the repair at once.
	immediately = 500 * time.Millisecond
	// maxImmediate immediate drifts are a contention, and so are maxRepairs repairs within the memory.
	maxImmediate = 4
	maxRepairs   = 20
	memory       = 10 * time.Minute
	// The pauses of a contention.
	shortPause, longPause = 250 * time.Millisecond, 5 * time.Minute
	// After maxIdle writes that change nothing of the release's, checks of the object have short pauses.
	maxIdle              = 20
	rest                 = time.Minute // after which these writes are forgotten, and a contention has ended
	idlePause, idleLimit = 10 * time.Millisecond, time.Second
)

// observe records the result of a check. When a contention begins, it returns the first pause, otherwise 0.
func (c *contention) observe(now time.Time, isRepaired bool) (pause time.Duration) {
	if !isRepaired {
		c.observeIdle(now)
		return 0
	}
	if now.Sub(c.repairedAt) > memory {
		c.repairs, c.immediate = nil, 0
	}
	for len(c.repairs) > 0 && now.Sub(c.repairs[0]) > memory {
		c.repairs = c.repairs[1:]
	}
	wasActive := c.isActive()
	switch {
	case len(c.repairs) == 0:
	case len(c.repairs) >= maxRepairs:
		c.immediate = max(c.immediate, maxImmediate) + 1
	case c.driftedAt.Sub(c.repairedAt) < immediately:
		c.immediate++
	case c.driftedAt.Sub(c.repairedAt) > 2*c.backoff():
		c.immediate = 0 // the other writer has stopped, or writes now and then
	}
	c.repairedAt, c.idle = now, 0
	c.repairs = append(c.repairs, now)
	if !c.isActive() {
		return 0
	}
	c.repairs = c.repairs[max(0, len(c.repairs)-maxRepairs):]
	c.until = now.Add(c.backoff())
	if wasActive {
		return 0
	}
	return c.backoff()
}

func (c *contention) isActive() bool {
	return c.immediate >= maxImmediate || len(c.repairs) >= maxRepairs
}

// backoff returns the pause after a repair of an object in contention.
func (c *contention) backoff() time.Duration {
	return min(shortPause<<min(max(0, c.immediate-maxImmediate), 20), longPause)
}

// observeIdle records a write of an object that changed nothing of the release's.
func (c *contention) observeIdle(now time.Time) {
	if now.Sub(c.idleAt) > rest {
		c.idle = 0
	}
	c.idleAt = now
	c.idle++
	if over := c.idle - maxIdle; over > 0 {
		c.until = now.Add(min(idlePause<<min(over, 20), idleLimit))
	}
}

// remaining returns the time after which the contention has ended, unless the other writer changes the object before.
func (c *contention) remaining(now time.Time) time.Duration {
	if !c.isActive() {
		return 0
	}
	return c.repairedAt.Add(max(rest, 2*c.backoff())).Sub(now)
}

// pause returns the time until the object may be repaired again.
func (c *contention) pause(now time.Time) time.Duration { return c.until.Sub(now) }

// reportContention reports a contention, also as an event of Kubernetes, for the owners of the other manager. If the
// event can't be written, the error is ignored.
func (k *Keeper) reportContention(o *objectState, uid types.UID, lost []ownership.Conflict, pause time.Duration) {
	what := "another client deletes it, or changes it, again and again"
	if len(lost) > 0 {
		what = "other managers change it again and again: " + object.LossesInWords(lost)
	}
	what += "; it is repaired after longer and longer pauses, now " + pause.String()
	k.report(o, Event{Type: Contested, Object: &o.id, File: o.manifest.Path, Lost: lost, Message: what})
	_ = cluster.RecordEvent(k.ctx, k.cluster, cluster.ObjectEvent{
		ID:        o.id,
		UID:       uid,
		Reason:    "Contested",
		IsWarning: true,
		Message:   "it does not match release " + k.options.Apply.Release + ": " + what,
	})
}
