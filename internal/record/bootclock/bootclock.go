// Package bootclock is the clock by which the age of a Lease is measured: no user sets it, and it runs while the machine
// sleeps. Go's own clock stands still then, and the clock on the wall may be set back: by either of them, a Lease that
// another process has long taken would seem to be fresh.
//
// Now is all there is. It says nothing about the time of day.
package bootclock
