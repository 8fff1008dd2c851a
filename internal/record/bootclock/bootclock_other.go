//go:build !linux

package bootclock

import "time"

var started = time.Now()

// Now returns the time since the program was started. It is the later of the wall clock, which may be set, and the
// monotonic clock, which may stand still while the machine sleeps.
func Now() time.Duration {
	now := time.Now()
	return max(now.Sub(started), now.Round(0).Sub(started.Round(0)))
}
