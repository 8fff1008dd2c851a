package machinedeployment

import (
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
)

// rolloutFields returns the fields of a template that reach machines only when they are recreated.
func rolloutFields(template clusterv1.MachineSpec) clusterv1.MachineSpec {
	return clusterv1.MachineSpec{
		Version: template.Version, FailureDomain: template.FailureDomain,
		Bootstrap: template.Bootstrap, InfrastructureRef: template.InfrastructureRef,
	}
}

// untilRollout returns how long it is until spec.rollout.after, 0 if that has passed.
func (s *deploymentSnapshot) untilRollout() time.Duration {
	after := s.deployment.Spec.Rollout.After
	if after.IsZero() {
		return 0
	}
	return max(0, after.Sub(s.time))
}

// current returns the set with the deployment's template, or nil.
func (s *deploymentSnapshot) current() *clusterv1.MachineSet {
	return rolloutrules.Current(s.deployment, s.sets, s.time)
}

// old returns all sets except for the current one, the oldest first.
func (s *deploymentSnapshot) old(current *clusterv1.MachineSet) []*clusterv1.MachineSet {
	return slices.DeleteFunc(slices.Clone(s.sets), func(set *clusterv1.MachineSet) bool { return set == current })
}
