package rolloutplan

import (
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
)

// SpecOf returns the spec of a deployment, which has its defaults, and limits that were validated.
func SpecOf(spec *clusterv1.MachineDeploymentSpec) RolloutSpec {
	surge, unavailable, _ := rolloutrules.Limits(spec)
	return RolloutSpec{
		Replicas: int(*spec.Replicas), MaxSurge: surge, MaxUnavailable: unavailable,
		IsOnDelete: rolloutrules.IsOnDelete(spec), IsPaused: ptr.Deref(spec.Paused, false),
	}
}

// WithMachines returns the state of a set with its machines. They are counted here, since the counts of its status lag behind.
// isCurrent is true if the set has the template of the deployment, isMoving if it moves machines to another set.
func (s SetState) WithMachines(machines []*clusterv1.Machine, isCurrent, isMoving bool) SetState {
	s.Current = len(machines)
	living := 0
	for _, m := range machines {
		if m.DeletionTimestamp == nil {
			living++
		}
		if rolloutrules.IsAvailable(m) {
			s.Available++
		}
		if rolloutrules.IsArriving(m) {
			s.Arrived = append(s.Arrived, m.Name)
		}
	}
	if isCurrent {
		s.UpToDate = s.Available
	}
	if isMoving {
		s.Unmoved = max(0, living-s.Replicas)
	}
	return s
}

// Updating returns the names of the machines that are being updated in place.
func Updating(machines []*clusterv1.Machine) []string {
	var names []string
	for _, m := range machines {
		if rolloutrules.IsUpdating(m) {
			names = append(names, m.Name)
		}
	}
	return names
}
