package machineset

import (
	"cmp"
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/owners"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// report writes the status of a set, and returns the problem of the reconciliation, so that the queue retries.
func (r *Reconciler) report(ctx context.Context, s *snapshot, problem error) error {
	changed := s.set.DeepCopy()
	message := cmp.Or(s.invalid, replicas.MessageOf(problem))
	setStatus(changed, s, message)
	return r.WriteStatus(ctx, s.set, changed, message, problem)
}

// setStatus sets the status of a set. An invalid set keeps its counts, since its machines are not known. For a paused
// set only the condition Paused changes.
func setStatus(set *clusterv1.MachineSet, s *snapshot, problem string) {
	if owners.SetPaused(set, s.cluster) {
		return
	}
	status := &set.Status
	status.ObservedGeneration = set.Generation
	if s.invalid != "" {
		owners.Set(set, owners.Condition(clusterv1.ScalingUpCondition, false, problem))
		return
	}
	machines := s.counted()
	status.Selector = s.selector.String()
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.UpToDateReplicas = owners.Count(machines)
	owners.SetSummary(set, owners.Summary{
		Machines: machines, Current: len(machines), Wanted: s.wanted(), Problem: problem, Now: s.now,
	})
	owners.Set(set, owners.Remediated(machines, "MachineSet"))
}
