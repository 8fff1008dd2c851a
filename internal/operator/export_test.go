package operator

import (
	"io/fs"
	"time"

	"github.com/runlevel/runlevel/pkg/payload"
)

// LeftOut returns why a release with problems is not complete.
func LeftOut(files fs.FS, problems []payload.Problem) error { return unreadOf(files, problems).err() }

// SetLimits makes probes less patient.
func (o *Options) SetLimits(loopTimeout, watchNotReadyAfter, watchNotAliveAfter time.Duration) {
	o.limits = limits{
		loopTimeout:        loopTimeout,
		watchNotReadyAfter: watchNotReadyAfter,
		watchNotAliveAfter: watchNotAliveAfter,
	}
}
