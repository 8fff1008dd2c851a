package keep

import "time"

// Contention exports the decisions about other writers for tests.
type Contention struct{ contention }

// Drift records that an object differs.
func (c *Contention) Drift(now time.Time) { c.driftedAt = now }

// Pause returns for how long an object is left alone from now on.
func (c *Contention) Pause(now time.Time) time.Duration { return max(0, c.pause(now)) }

// Left returns how long the contention lasts, if no other drift comes.
func (c *Contention) Left(now time.Time) time.Duration { return c.remaining(now) }

// Note records that an object was checked.
func (c *Contention) Note(now time.Time, isRepaired bool) time.Duration {
	return c.observe(now, isRepaired)
}
