package machineset

import (
	"time"

	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// A replica is a machine as the decisions see it.
type replica struct {
	replicas.Replica
	created  time.Time
	isFailed bool // its status has an error
	hasNode  bool
}

// isCounted says whether a machine is one of the set's replicas. One that is being deleted is not, however long a
// hook holds it: its replacement is made at once.
func (r replica) isCounted() bool { return !r.IsDeleting && r.IsCounted() }

// makePlan returns what is to be done so that there are as many machines as wanted.
func makePlan(wanted int, policy deletePolicy, machines []replica, now time.Time) replicas.ReplicaPlan {
	counted := make([]replicas.Replica, 0, len(machines))
	for _, m := range machines {
		if m.IsDeleting {
			continue
		}
		m.Priority = priority(m, policy, now)
		m.IsMarked = m.IsMarked || m.isFailed // before one of the same rank that was made this very moment
		counted = append(counted, m.Replica)
	}
	return replicas.Make(wanted, counted)
}
