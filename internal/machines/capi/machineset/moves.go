package machineset

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// readDestination reads the set to which surplus machines are moved, if any.
func (s *snapshot) readDestination(ctx context.Context, reader client.Reader) error {
	name, isMoving := s.set.Annotations[clusterv1.MachineSetMoveMachinesToMachineSetAnnotation]
	if !isMoving {
		return nil
	}
	destination := &clusterv1.MachineSet{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: s.set.Namespace, Name: name}, destination)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read MachineSet %s, to which machines are moved: %w", name, err)
	}
	s.destination = destination
	return nil
}

// removeSurplus moves surplus machines to the set that the annotation names, or else deletes them.
func (r *Reconciler) removeSurplus(ctx context.Context, s *snapshot, names []string) error {
	if _, isMoving := s.set.Annotations[clusterv1.MachineSetMoveMachinesToMachineSetAnnotation]; !isMoving {
		return replicas.Remove(ctx, r.scaler(s), names, s.machines)
	}
	if err := s.checkDestination(); err != nil {
		return err
	}
	var moved []*clusterv1.Machine
	var deleted []string
	for _, name := range names {
		switch isMoved, isLeft := rolloutrules.Surplus(s.machines[name]); {
		case isMoved:
			moved = append(moved, s.machines[name])
		case !isLeft:
			deleted = append(deleted, name)
		}
	}
	if err := r.move(ctx, s, moved); err != nil || len(deleted) == 0 {
		return err
	}
	return replicas.Remove(ctx, r.scaler(s), deleted, s.machines)
}

// checkDestination returns an error unless the set to which machines are moved expects them: it would delete them as
// surplus.
func (s *snapshot) checkDestination() error {
	name := s.set.Annotations[clusterv1.MachineSetMoveMachinesToMachineSetAnnotation]
	own := metav1.GetControllerOfNoCopy(s.set)
	switch {
	case s.destination == nil:
		return fmt.Errorf("machines can't be moved to MachineSet %s, which does not exist", name)
	case own == nil || !metav1.IsControlledBy(s.destination, &metav1.ObjectMeta{UID: own.UID}):
		return fmt.Errorf("machines can't be moved to MachineSet %s, which belongs to another MachineDeployment",
			name)
	case s.destination.DeletionTimestamp != nil:
		return fmt.Errorf("machines can't be moved to MachineSet %s, which is being deleted", name)
	case !slices.Contains(rolloutrules.Names(
		s.destination.Annotations[clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation],
	), s.set.Name):
		return fmt.Errorf("machines can't be moved to MachineSet %s, which does not expect machines of MachineSet %s",
			name, s.set.Name)
	}
	return nil
}

// move moves machines to another set, each by one write, which fails if the machine was deleted meanwhile.
func (r *Reconciler) move(ctx context.Context, s *snapshot, machines []*clusterv1.Machine) error {
	count, err := replicas.InParallel(len(machines), requests, func(i int) error {
		return client.IgnoreNotFound(
			patch.WithLock(ctx, r.Client, movedTo(s.destination, s.set, machines[i]), machines[i]),
		)
	})
	if count > 0 {
		r.Events.Eventf(s.set, nil, corev1.EventTypeNormal, "SuccessfulMove", "UpdateInPlace",
			"Moved %d machines to MachineSet %s, to be updated in place", count, s.destination.Name)
	}
	if err != nil {
		return fmt.Errorf("move %d of %d machines to MachineSet %s: %w", len(machines)-count, len(machines),
			s.destination.Name, err)
	}
	return nil
}

// movedTo returns a machine with another set as its owner, which has not counted it yet.
func movedTo(destination, from *clusterv1.MachineSet, machine *clusterv1.Machine) *clusterv1.Machine {
	moved := machine.DeepCopy()
	moved.OwnerReferences = slices.DeleteFunc(moved.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.UID == from.UID
	})
	moved.OwnerReferences = append(moved.OwnerReferences, controllerOf(destination))
	metav1.SetMetaDataLabel(&moved.ObjectMeta, clusterv1.MachineDeploymentUniqueLabel,
		destination.Labels[clusterv1.MachineDeploymentUniqueLabel])
	metav1.SetMetaDataAnnotation(&moved.ObjectMeta, clusterv1.UpdateInProgressAnnotation, "")
	metav1.SetMetaDataAnnotation(&moved.ObjectMeta, clusterv1.PendingAcknowledgeMoveAnnotation, "")
	return moved
}

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
		begun, err := r.machines.BeginUpdate(ctx, s.template(), arrivals[i])
		if err == nil {
			r.Events.Eventf(begun, nil, corev1.EventTypeNormal, "SuccessfulStartInPlaceUpdate", "UpdateInPlace",
				"Machine starting in-place update")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("begin the update in place of machines: %w", err)
	}
	return nil
}
