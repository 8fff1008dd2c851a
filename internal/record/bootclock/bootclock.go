// Package bootclock is the clock for the age of a Lease: users can't set it, and it runs while the machine sleeps. Go's
// monotonic clock stops then, and the wall clock may be set back: by either clock, a Lease that another
// process acquired long ago would seem fresh.
//
// Now is its only function. It does not return the time of day.
package bootclock
