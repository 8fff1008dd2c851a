package capi

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/queue"
)

// updateCalls are the last answers of extensions, by the Machines that they update. After a restart, the extension is called
// at once, as it is by Cluster API's own controller.
type updateCalls struct {
	mu      sync.Mutex
	known   map[types.UID]updateCall
	running int
}

// An updateCall is the answer of an extension, and when it may be called again.
type updateCall struct {
	next            time.Time
	failures        int // in a row
	reason, message string
}

// last returns the last call of a Machine, and how long it is until the next one.
func (c *updateCalls) last(machine types.UID, now time.Time) (updateCall, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.known[machine]
	return call, call.next.Sub(now)
}

// begin reports whether another extension may be called: at most half of the workers wait for extensions, so that deletions
// continue while extensions hang. If it returns true, the caller calls end.
func (c *updateCalls) begin(workers int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running >= max(1, workers/2) {
		return false
	}
	c.running++
	return true
}

func (c *updateCalls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
}

func (c *updateCalls) add(machine types.UID, call updateCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[types.UID]updateCall{}
	}
	c.known[machine] = call
}

// fail records a failed call, and returns the pause before the next one, which doubles with each failure.
func (c *updateCalls) fail(machine types.UID, now time.Time, message string) time.Duration {
	last, _ := c.last(machine, now)
	pause := queue.RetrySoon
	for range last.failures {
		pause = min(2*pause, queue.RetrySeldom)
	}
	c.add(machine, updateCall{
		next: now.Add(pause), failures: min(last.failures+1, 10), reason: clusterv1.MachineInPlaceUpdateFailedReason, message: message,
	})
	return pause
}

func (c *updateCalls) forget(machine types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, machine)
}
