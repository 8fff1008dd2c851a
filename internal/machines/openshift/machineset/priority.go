package machineset

import (
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"

	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// A deletePolicy is the order in which a set deletes surplus machines. The empty one is Random.
type deletePolicy = machinev1beta1.MachineSetDeletePolicy

// The priorities of a machine; the highest is deleted first. The values are OpenShift's: tools that predict a scale
// down calculate with them.
const (
	highestPriority = 100.0
	markedOrFailed  = 50.0
	withoutNode     = 40.0
	withNode        = 20.0
	// The priority by age grows with this time constant: it has reached half of the maximum after 69 days.
	ageConstant = 100 * 24 * time.Hour
)

// priority returns the priority of a machine not being deleted.
func priority(m *machinev1beta1.Machine, policy deletePolicy, now time.Time) float64 {
	isByAge := policy == machinev1beta1.OldestMachineSetDeletePolicy ||
		policy == machinev1beta1.NewestMachineSetDeletePolicy
	switch {
	case isMarked(m):
		if isByAge {
			return highestPriority
		}
		return markedOrFailed
	case policy == machinev1beta1.OldestMachineSetDeletePolicy:
		return replicas.PriorityByAge(m.CreationTimestamp.Time, now, ageConstant)
	case policy == machinev1beta1.NewestMachineSetDeletePolicy:
		return highestPriority - replicas.PriorityByAge(m.CreationTimestamp.Time, now, ageConstant)
	case m.Status.NodeRef == nil:
		return withoutNode
	default:
		return withNode
	}
}
