package keep

import "time"

// Quarrel makes what is decided about others' haste known to tests.
type Quarrel struct{ quarrel }

// Drift notes that an object is seen not to be as it should, unless that is known.
func (q *Quarrel) Drift(now time.Time) { q.drifted = now }

// Pause is for how long an object is left alone from now on.
func (q *Quarrel) Pause(now time.Time) time.Duration { return max(0, q.pause(now)) }

// Note notes that an object was looked at.
func (q *Quarrel) Note(now time.Time, hasChanged bool) time.Duration { return q.note(now, hasChanged) }
