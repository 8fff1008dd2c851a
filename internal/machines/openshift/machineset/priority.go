package machineset

import (
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"

	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// A deletePolicy says which machines a set can spare first. The empty one is Random.
type deletePolicy = machinev1beta1.MachineSetDeletePolicy

// What ranks a machine; the highest goes first. The figures are OpenShift's: tools that predict a scale down
// calculate with them.
const (
	highestPriority = 100.0
	markedOrFailed  = 50.0
	withoutNode     = 40.0
	withNode        = 20.0
	// The rank by age grows with this time constant: it has come half way after 69 days.
	ageConstant = 100 * 24 * time.Hour
)

// priority ranks a machine that is not being deleted.
func priority(m replica, policy deletePolicy, now time.Time) float64 {
	isByAge := policy == machinev1beta1.OldestMachineSetDeletePolicy || policy == machinev1beta1.NewestMachineSetDeletePolicy
	switch {
	case m.IsMarked || m.isFailed:
		if isByAge {
			return highestPriority
		}
		return markedOrFailed
	case policy == machinev1beta1.OldestMachineSetDeletePolicy:
		return replicas.PriorityByAge(m.created, now, ageConstant)
	case policy == machinev1beta1.NewestMachineSetDeletePolicy:
		return highestPriority - replicas.PriorityByAge(m.created, now, ageConstant)
	case !m.hasNode:
		return withoutNode
	default:
		return withNode
	}
}
