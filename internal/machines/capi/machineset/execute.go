package machineset

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// claim sets the finalizer and the labels of the set, and makes the Cluster its owner, unless a MachineDeployment is.
func (r *Reconciler) claim(ctx context.Context, s *snapshot) error {
	claimed, cluster := s.set.DeepCopy(), s.cluster
	metav1.SetMetaDataLabel(&claimed.ObjectMeta, clusterv1.ClusterNameLabel, claimed.Spec.ClusterName)
	isOfDeployment := metav1.HasLabel(claimed.ObjectMeta, clusterv1.MachineDeploymentNameLabel)
	if isOfDeployment || slices.ContainsFunc(claimed.OwnerReferences, isClusterOrDeployment) {
		cluster = nil
	}
	if err := r.Claim(ctx, s.set, claimed, clusterv1.MachineSetFinalizer, cluster); err != nil {
		return err
	}
	s.set = claimed
	return nil
}

func isClusterOrDeployment(owner metav1.OwnerReference) bool {
	return strings.HasPrefix(owner.APIVersion, clusterv1.GroupVersion.Group+"/") &&
		(owner.Kind == "Cluster" || owner.Kind == "MachineDeployment")
}

// execute executes the plan of the set.
func (r *Reconciler) execute(ctx context.Context, s *snapshot) error {
	scaler, plan := r.scaler(s), s.plan()
	if err := replicas.SettleOwnership(ctx, scaler, plan, s.machines); err != nil {
		return err
	}
	if plan.Create > 0 {
		if err := r.preflight(ctx, s); err != nil {
			return err
		}
		if err := r.machines.DeleteLeftovers(ctx, s.template(), s.machines); err != nil {
			return err
		}
		return scaler.Create(ctx, plan.Create, func() (string, error) { return r.createMachine(ctx, s) })
	}
	return r.removeSurplus(ctx, s, plan.Remove)
}

func (r *Reconciler) scaler(s *snapshot) replicas.Scaler {
	return replicas.Scaler{
		Client: r.Client, Events: r.Events, Set: s.set, Owner: controllerOf(s.set), Requests: requests,
	}
}

// end deletes the machines of a set, and removes its finalizer when no machine is left. If dependents are orphaned, the
// garbage collector removes their owner references first.
func (r *Reconciler) end(ctx context.Context, s *snapshot) error {
	var owned []string
	for _, machine := range s.owned() {
		owned = append(owned, machine.Name)
	}
	switch {
	case controllerutil.ContainsFinalizer(s.set, metav1.FinalizerOrphanDependents):
		return nil
	case len(owned) == 0:
		return client.IgnoreNotFound(patch.RemoveFinalizer(ctx, r.Client, s.set, clusterv1.MachineSetFinalizer))
	}
	return replicas.Remove(ctx, r.scaler(s), owned, s.machines)
}

func controllerOf(set *clusterv1.MachineSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(set, clusterv1.GroupVersion.WithKind("MachineSet"))
}
