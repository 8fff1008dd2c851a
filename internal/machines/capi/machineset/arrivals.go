package machineset

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// acknowledged returns the machines that were moved to the set, and that its deployment has counted among its replicas.
func (s *snapshot) acknowledged() []string {
	return rolloutrules.Names(s.set.Annotations[clusterv1.AcknowledgedMoveAnnotation])
}

// isUncounted reports whether a machine has arrived that the set's replicas do not count yet: it is not surplus.
func (s *snapshot) isUncounted(m replicas.Replica) bool {
	return rolloutrules.IsArriving(s.machines[m.Name]) && !slices.Contains(s.acknowledged(), m.Name)
}

// isAhead reports whether the set's replicas count a machine whose arrival was not observed, since machines are read
// before the set. A replacement would be created for it.
func (s *snapshot) isAhead() bool {
	return slices.ContainsFunc(s.acknowledged(), func(name string) bool {
		return !slices.ContainsFunc(s.replicas, func(m replicas.Replica) bool {
			return m.Name == name && m.IsCounted()
		})
	})
}

// arrivals returns the machines whose update in place can begin: they are counted, and are not being deleted.
func (s *snapshot) arrivals() []*clusterv1.Machine {
	var found []*clusterv1.Machine
	for _, machine := range s.counted() {
		if rolloutrules.IsArriving(machine) && machine.DeletionTimestamp == nil &&
			slices.Contains(s.acknowledged(), machine.Name) {
			found = append(found, machine)
		}
	}
	return found
}

// beginUpdates triggers the updates of the machines that have arrived.
func (r *Reconciler) beginUpdates(ctx context.Context, s *snapshot) error {
	if s.invalid != "" {
		return nil
	}
	arrivals := s.arrivals()
	_, err := replicas.InParallel(len(arrivals), requests, func(i int) error {
		return r.beginUpdate(ctx, s.set, arrivals[i])
	})
	if err != nil {
		return fmt.Errorf("begin the update in place of machines: %w", err)
	}
	return nil
}

func (r *Reconciler) beginUpdate(ctx context.Context, set *clusterv1.MachineSet, machine *clusterv1.Machine) error {
	begun, err := r.machines.BeginUpdate(ctx, templateOf(set), machine)
	if err == nil {
		r.recorder.Eventf(begun, nil, corev1.EventTypeNormal, "SuccessfulStartInPlaceUpdate", "UpdateInPlace",
			"Machine starting in-place update")
	}
	return err
}
