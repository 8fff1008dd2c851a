package capi

import (
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/queue"
)

// updateCalls are the last answers of extensions, by the UIDs of the Machines that they update. After a restart, the extension is
// called at once, as it is by Cluster API's own controller.
type updateCalls struct {
	known sync.Map
	// running bounds the calls: at most half of the workers wait for extensions, so that deletions continue while extensions hang.
	running *semaphore.Weighted
}

// An updateCall is the answer of an extension, and when it may be called again.
type updateCall struct {
	next            time.Time
	failures        int // in a row
	reason, message string
}

// last returns the last call of a Machine, and how long it is until the next one.
func (c *updateCalls) last(machine types.UID, now time.Time) (updateCall, time.Duration) {
	known, _ := c.known.Load(machine)
	call, _ := known.(updateCall)
	return call, call.next.Sub(now)
}

// fail records a failed call, and returns the pause before the next one, which doubles with each failure.
func (c *updateCalls) fail(machine types.UID, now time.Time, message string) time.Duration {
	last, _ := c.last(machine, now)
	pause := queue.RetrySoon
	for range last.failures {
		pause = min(2*pause, queue.RetrySeldom)
	}
	c.known.Store(machine, updateCall{
		next: now.Add(pause), failures: min(last.failures+1, 10), reason: clusterv1.MachineInPlaceUpdateFailedReason, message: message,
	})
	return pause
}
