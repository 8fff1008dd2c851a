package keep

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/ownership"
)

// A quarrel is that somebody makes an object otherwise again and again, as soon as it is
// repaired: a controller does, or another tool that keeps objects in place. Whoever changes it
// now and then does not quarrel.
type quarrel struct {
	drifted  time.Time   // when it was first seen not to be as it should
	repaired time.Time   // when it was repaired last
	rounds   []time.Time // when it was repaired
	hasty    int         // how often they came right after the one before
	idle     int         // how often somebody wrote it in a row, and nothing of ours
	looked   time.Time   // when that was seen last
	until    time.Time   // when it may be looked at again
}

const (
	// right after means within haste: a controller answers at once.
	haste = 500 * time.Millisecond
	// mostHasty rounds in haste are a quarrel, and so are mostRounds within memory.
	mostHasty  = 4
	mostRounds = 20
	memory     = 10 * time.Minute
	// The pauses of a quarrel.
	shortPause, longPause = 250 * time.Millisecond, 5 * time.Minute
	// mostIdle looks at an object in vain are without pauses; they don't get long.
	mostIdle             = 20
	rest                 = time.Minute // after which it is as if nobody had written it
	idlePause, idleLimit = 10 * time.Millisecond, time.Second
)

// note takes in that an object was looked at, and says for how long it will be left alone if
// that is about a quarrel, once.
func (q *quarrel) note(now time.Time, hasChanged bool) (pause time.Duration) {
	if !hasChanged {
		q.idled(now)
		return 0
	}
	if now.Sub(q.repaired) > memory {
		q.rounds, q.hasty = nil, 0
	}
	for len(q.rounds) > 0 && now.Sub(q.rounds[0]) > memory {
		q.rounds = q.rounds[1:]
	}
	wasQuarrel := q.isOne()
	switch {
	case len(q.rounds) == 0:
	case len(q.rounds) >= mostRounds:
		q.hasty = max(q.hasty, mostHasty) + 1
	case q.drifted.Sub(q.repaired) < haste:
		q.hasty++
	case q.drifted.Sub(q.repaired) > 2*q.pauseNow():
		q.hasty = 0 // they have given in, or do so now and then
	}
	q.repaired, q.idle = now, 0
	q.rounds = append(q.rounds, now)
	if !q.isOne() {
		return 0
	}
	q.rounds = q.rounds[max(0, len(q.rounds)-mostRounds):]
	q.until = now.Add(q.pauseNow())
	if wasQuarrel {
		return 0
	}
	return q.pauseNow()
}

func (q *quarrel) isOne() bool { return q.hasty >= mostHasty || len(q.rounds) >= mostRounds }

// pauseNow is how long an object is left alone that is quarrelled about.
func (q *quarrel) pauseNow() time.Duration {
	return min(shortPause<<min(max(0, q.hasty-mostHasty), 20), longPause)
}

// idled notes that somebody wrote an object, and nothing of ours.
func (q *quarrel) idled(now time.Time) {
	if now.Sub(q.looked) > rest {
		q.idle = 0
	}
	q.looked = now
	q.idle++
	if over := q.idle - mostIdle; over > 0 {
		q.until = now.Add(min(idlePause<<min(over, 20), idleLimit))
	}
}

// pause is how long an object is left alone, from now on.
func (q *quarrel) pause(now time.Time) time.Duration { return q.until.Sub(now) }

// tellQuarrel tells of a quarrel, here and where those will look who are part of it.
func (k *Keeper) tellQuarrel(o *kept, uid types.UID, lost []ownership.Loss, pause time.Duration) {
	what := "somebody deletes it, or makes it otherwise, again and again"
	if len(lost) > 0 {
		what = "others make it otherwise again and again: " + object.LossesInWords(lost)
	}
	what += "; it is repaired after longer and longer pauses, now " + pause.String()
	k.tell(Event{Type: Contested, Object: &o.id, File: o.manifest.Path, Lost: lost, Message: what})
	// That nobody can be told there, is no failure.
	_ = k.cluster.Announce(k.ctx, cluster.News{ID: o.id, UID: uid, Reason: "Contested", IsWarning: true, Message: "it is not as release " + k.options.Apply.Release + " says: " + what})
}
