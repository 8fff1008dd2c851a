package apply

import "time"

// Trusting are options of a run for which what was seen before counts as long as is said.
func (o Options) Trusting(look time.Duration) Options {
	o.lookCounts = look
	return o
}
