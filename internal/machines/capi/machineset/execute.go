package machineset

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// claim sets the finalizer and the owner reference to the Cluster of the set.
func (r *Reconciler) claim(ctx context.Context, s *snapshot) error {
	claimed := s.set.DeepCopy()
	controllerutil.AddFinalizer(claimed, clusterv1.MachineSetFinalizer)
	metav1.SetMetaDataLabel(&claimed.ObjectMeta, clusterv1.ClusterNameLabel, claimed.Spec.ClusterName)
	_, isOfDeployment := claimed.Labels[clusterv1.MachineDeploymentNameLabel]
	if s.cluster != nil && !isOfDeployment && !slices.ContainsFunc(claimed.OwnerReferences, isClusterOrDeployment) {
		claimed.OwnerReferences = append(claimed.OwnerReferences, contract.ClusterOwner(s.cluster))
	}
	if equality.Semantic.DeepEqual(s.set.ObjectMeta, claimed.ObjectMeta) {
		return nil
	}
	if err := patch.WithLock(ctx, r.cached, claimed, s.set); err != nil {
		return fmt.Errorf("claim MachineSet %s: %w", s.set.Name, err)
	}
	s.set = claimed
	return nil
}

func isClusterOrDeployment(owner metav1.OwnerReference) bool {
	return strings.HasPrefix(owner.APIVersion, clusterv1.GroupVersion.Group+"/") &&
		(owner.Kind == "Cluster" || owner.Kind == "MachineDeployment")
}

// execute executes a plan.
func (r *Reconciler) execute(ctx context.Context, s *snapshot, p replicas.Plan) error {
	scaler := r.scaler(s)
	if err := replicas.SettleOwnership(ctx, scaler, p, s.machines); err != nil {
		return err
	}
	if p.Create > 0 {
		if err := r.prepare(ctx, s); err != nil {
			return err
		}
		return scaler.Create(ctx, p.Create, func() (string, error) { return r.createMachine(ctx, s.set) })
	}
	if len(p.Remove) > 0 {
		return r.spare(ctx, s, p.Remove)
	}
	return nil
}

func (r *Reconciler) scaler(s *snapshot) replicas.Scaler {
	return replicas.Scaler{
		Client: r.cached, Events: r.recorder, Set: s.set, Owner: controllerOf(s.set), Requests: requests,
	}
}

// prepare returns an error while no machine can be created.
func (r *Reconciler) prepare(ctx context.Context, s *snapshot) error {
	if err := r.preflight(ctx, s); err != nil {
		return err
	}
	return r.machines.DeleteLeftovers(ctx, templateOf(s.set), s.machines)
}

// end deletes the machines of a set that is being deleted, and removes the finalizer when they are gone. If dependents
// are orphaned, the garbage collector removes their owner references first.
func (r *Reconciler) end(ctx context.Context, s *snapshot) error {
	owned := s.owned()
	switch {
	case controllerutil.ContainsFinalizer(s.set, metav1.FinalizerOrphanDependents):
		return nil
	case len(owned) == 0:
		before := s.set.DeepCopy()
		if !controllerutil.RemoveFinalizer(s.set, clusterv1.MachineSetFinalizer) {
			return nil
		}
		return client.IgnoreNotFound(patch.WithLock(ctx, r.cached, s.set, before))
	}
	var names []string
	for _, machine := range owned {
		if machine.DeletionTimestamp == nil {
			names = append(names, machine.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return replicas.Remove(ctx, r.scaler(s), names, s.machines)
}

func controllerOf(set *clusterv1.MachineSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(set, clusterv1.GroupVersion.WithKind("MachineSet"))
}
