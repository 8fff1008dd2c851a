package bootclock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine was started.
func Now() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic("this Linux has no CLOCK_BOOTTIME: " + err.Error()) // every one since 2.6.39 has
	}
	return time.Duration(now.Nano())
}
