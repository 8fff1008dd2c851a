//go:build !linux

package bootclock

import "time"

var started = time.Now()

// Now returns the time since the program was started. Here it is the clock on the wall, which may be set; it is not behind
// the one that only stands still while the machine sleeps.
func Now() time.Duration {
	now := time.Now()
	return max(now.Sub(started), now.Round(0).Sub(started.Round(0)))
}
