// Package bootclock is the clock for the age of a Lease: users can't set it, and it runs while the machine sleeps. Go's
// monotonic clock stands still then, and the wall clock may be set back: by either of them, a Lease that another
// process has long acquired would seem fresh.
//
// Now is its only function. It does not return the time of day.
package bootclock
