package machineset

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/replicas"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
)

// acknowledged returns the machines that were moved to the set, and that its deployment has counted among its replicas.
func (s *clusterSetSnapshot) acknowledged() []string {
	return rolloutrules.Names(s.set.Annotations[clusterv1.AcknowledgedMoveAnnotation])
}

// isUncounted reports whether a machine has arrived that the set's replicas do not count yet: it is not surplus.
func (s *clusterSetSnapshot) isUncounted(m replicas.Replica) bool {
	return rolloutrules.IsArriving(s.machines[m.Name]) && !slices.Contains(s.acknowledged(), m.Name)
}

// isAhead reports whether the set's replicas count a machine whose arrival was not observed, since machines are read before the
// set. A replacement would be created for it.
func (s *clusterSetSnapshot) isAhead() bool {
	return slices.ContainsFunc(s.acknowledged(), func(name string) bool {
		return !slices.ContainsFunc(s.replicas, func(m replicas.Replica) bool { return m.Name == name && m.IsCounted() })
	})
}

// arrivals returns the machines whose update in place can begin: they are counted, and are not being deleted.
func (s *clusterSetSnapshot) arrivals() []*clusterv1.Machine {
	var found []*clusterv1.Machine
	for _, machine := range s.counted() {
		if rolloutrules.IsArriving(machine) && machine.DeletionTimestamp == nil && slices.Contains(s.acknowledged(), machine.Name) {
			found = append(found, machine)
		}
	}
	return found
}

// beginUpdates triggers the updates of the machines that have arrived. The Machine is written last: until then, all of the
// writes are repeated.
func (r *ClusterMachineSetReconciler) beginUpdates(ctx context.Context, seen *clusterSetSnapshot) error {
	if seen.invalid != "" {
		return nil
	}
	arrivals := seen.arrivals()
	_, err := replicas.InParallel(len(arrivals), requests, func(i int) error { return r.beginUpdate(ctx, seen.set, arrivals[i]) })
	if err != nil {
		return fmt.Errorf("begin the update in place of machines: %w", err)
	}
	return nil
}

func (r *ClusterMachineSetReconciler) beginUpdate(ctx context.Context, set *clusterv1.MachineSet, machine *clusterv1.Machine) error {
	wanted, has := set.Spec.Template.Spec, machine.Spec
	if err := r.updateReferenced(ctx, set, has.InfrastructureRef, wanted.InfrastructureRef); err != nil {
		return err
	}
	if has.Bootstrap.ConfigRef.IsDefined() {
		if err := r.updateReferenced(ctx, set, has.Bootstrap.ConfigRef, wanted.Bootstrap.ConfigRef); err != nil {
			return err
		}
	}
	begun := machine.DeepCopy()
	begun.Spec.Version, begun.Spec.FailureDomain = wanted.Version, wanted.FailureDomain
	if !has.Bootstrap.ConfigRef.IsDefined() {
		begun.Spec.Bootstrap.DataSecretName = wanted.Bootstrap.DataSecretName
	}
	delete(begun.Annotations, clusterv1.PendingAcknowledgeMoveAnnotation)
	begun.Annotations[clusterv1.UpdateInProgressAnnotation] = ""
	begun.Annotations[runtimev1.PendingHooksAnnotation] = withHook(begun.Annotations[runtimev1.PendingHooksAnnotation], runtimehook.UpdateMachine)
	if err := patch.WithLock(ctx, r.cached, begun, machine); err != nil {
		return fmt.Errorf("write Machine %s: %w", machine.Name, err)
	}
	r.recorder.Eventf(begun, nil, corev1.EventTypeNormal, "SuccessfulStartInPlaceUpdate", "UpdateInPlace", "Machine starting in-place update")
	return nil
}

// updateReferenced applies the set's template to infrastructure or a bootstrap config.
func (r *ClusterMachineSetReconciler) updateReferenced(ctx context.Context, set *clusterv1.MachineSet,
	ref, template clusterv1.ContractVersionedObjectReference,
) error {
	object, err := r.references.Get(ctx, ref, set.Namespace)
	if err != nil {
		return err
	}
	return r.references.Update(ctx, object, template, contract.TemplateClone{
		Namespace: set.Namespace, Name: ref.Name, ClusterName: set.Spec.ClusterName, Manager: fieldManager,
		Annotations: map[string]string{clusterv1.UpdateInProgressAnnotation: ""},
	})
}

// withHook adds a hook to the pending ones.
func withHook(pending, hook string) string {
	hooks := rolloutrules.Names(pending)
	if !slices.Contains(hooks, hook) {
		hooks = append(hooks, hook)
	}
	slices.Sort(hooks)
	return strings.Join(hooks, ",")
}
