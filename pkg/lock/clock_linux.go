package lock

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is a clock that no user can set, and that runs while the machine sleeps: Go's own stands still
// then.
func sinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic("this Linux has no CLOCK_BOOTTIME: " + err.Error()) // every one since 2.6.39 has
	}
	return time.Duration(now.Nano())
}
