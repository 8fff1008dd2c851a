//go:build !linux

package lock

import "time"

var started = time.Now()

// sinceBoot is a clock that runs while the machine sleeps. Here it is the clock on the wall, which may
// be set; it is not behind the one that only stands still while the machine sleeps.
func sinceBoot() time.Duration {
	now := time.Now()
	return max(now.Sub(started), now.Round(0).Sub(started.Round(0)))
}
