package operator

import "time"

// SetLimits makes probes less patient.
func (o *Options) SetLimits(loopTimeout, watchNotReadyAfter, watchNotAliveAfter time.Duration) {
	o.limits = limits{
		loopTimeout:        loopTimeout,
		watchNotReadyAfter: watchNotReadyAfter,
		watchNotAliveAfter: watchNotAliveAfter,
	}
}
