package machineset

import (
	"time"

	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// A replica is what the plan depends on of a machine.
type replica struct {
	replicas.Replica
	created  time.Time
	isFailed bool // its status has an error
	hasNode  bool
}

// isCounted reports whether a machine is one of the set's replicas. A machine that is being deleted is not, even while a
// hook holds it: its replacement is created at once.
func (r replica) isCounted() bool { return !r.IsDeleting && r.IsCounted() }

// makePlan returns a plan that leads to the wanted number of machines.
func makePlan(wanted int, policy deletePolicy, machines []replica, now time.Time) replicas.ReplicaPlan {
	counted := make([]replicas.Replica, 0, len(machines))
	for _, m := range machines {
		if m.IsDeleting {
			continue
		}
		m.Priority = priority(m, policy, now)
		m.IsMarked = m.IsMarked || m.isFailed // before a machine of the same priority that was created at this moment
		counted = append(counted, m.Replica)
	}
	return replicas.Make(wanted, counted)
}
