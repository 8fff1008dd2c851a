package machinedeployment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/patch"
)

// fieldManager is the field manager of Cluster API's own controller: each can change and remove the fields that the
// other has set.
const fieldManager = client.FieldOwner("capi-machinedeployment")

// claim sets the finalizer, the owner reference to the Cluster and the revision of the deployment.
func (r *ClusterMachineDeploymentReconciler) claim(ctx context.Context, seen *deploymentSnapshot) error {
	before := &seen.deployment.ObjectMeta
	claimed := &clusterv1.MachineDeployment{ObjectMeta: *before.DeepCopy()}
	controllerutil.AddFinalizer(claimed, clusterv1.MachineDeploymentFinalizer)
	metav1.SetMetaDataLabel(&claimed.ObjectMeta, clusterv1.ClusterNameLabel, seen.deployment.Spec.ClusterName)
	if seen.rollout.revision != "" {
		metav1.SetMetaDataAnnotation(&claimed.ObjectMeta, clusterv1.RevisionAnnotation, seen.rollout.revision)
	}
	if seen.cluster != nil &&
		!slices.ContainsFunc(claimed.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.UID == seen.cluster.UID
		}) {
		claimed.OwnerReferences = append(claimed.OwnerReferences, contract.ClusterOwner(seen.cluster))
	}
	if equality.Semantic.DeepEqual(before, &claimed.ObjectMeta) {
		return nil
	}
	// Only metadata is compared: the spec has defaults that are not written.
	if err := patch.WithLock(ctx, r.cached, claimed, &clusterv1.MachineDeployment{ObjectMeta: *before}); err != nil {
		return fmt.Errorf("claim MachineDeployment %s: %w", before.Name, err)
	}
	seen.deployment.ObjectMeta = claimed.ObjectMeta
	return nil
}

// execute adopts sets, and executes the plan once the deployment controls all of them.
func (r *ClusterMachineDeploymentReconciler) execute(ctx context.Context, seen *deploymentSnapshot) error {
	if seen.undecided != nil {
		return nil
	}
	if len(seen.orphans) > 0 {
		return r.adopt(ctx, seen)
	}
	for _, change := range seen.rollout.changes {
		if err := r.change(ctx, seen, change); err != nil {
			return err
		}
	}
	for _, set := range seen.outdated() {
		if err := r.deleteSet(ctx, set); err != nil {
			return err
		}
		r.recordEvent(seen, "SuccessfulDelete", "Deleted MachineSet %q", set.Name)
	}
	return nil
}

// adopt makes the deployment the controller of its sets. The next pass, which follows, plans with them.
func (r *ClusterMachineDeploymentReconciler) adopt(ctx context.Context, seen *deploymentSnapshot) error {
	for _, set := range seen.orphans {
		adopted := set.DeepCopy()
		adopted.OwnerReferences = append(adopted.OwnerReferences, controllerOf(seen.deployment))
		if err := patch.WithLock(ctx, r.cached, adopted, set); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("adopt MachineSet %s: %w", set.Name, err)
		}
		r.recordEvent(seen, "SuccessfulAdopt", "Adopted MachineSet %q", set.Name)
	}
	return nil
}

// change creates or changes a set, and records an event.
func (r *ClusterMachineDeploymentReconciler) change(ctx context.Context, seen *deploymentSnapshot,
	change setChange) error {
	step := change.step
	if change.before == nil {
		if err := r.prepare(ctx, seen); err != nil {
			return err
		}
	}
	if err := contract.Apply(ctx, r.cached, change.desired, fieldManager); err != nil {
		return err
	}
	if change.before == nil {
		r.recordEvent(seen, "SuccessfulCreate", "Created MachineSet %s/%s with %d replicas", seen.deployment.Namespace,
			step.Set, step.To)
	}
	ctrl.LoggerFrom(ctx).Info("MachineSet changed", "machineSet", step.Set, "replicas", step.To, "reasons",
		step.Reasons)
	switch {
	case change.before != nil && step.To > step.From:
		r.recordEvent(seen, "SuccessfulScale", "Scaled up MachineSet %s: %d -> %d", step.Set, step.From, step.To)
	case step.To < step.From:
		r.recordEvent(seen, "SuccessfulScale", "Scaled down MachineSet %s: %d -> %d", step.Set, step.From, step.To)
	}
	return nil
}

// prepare returns an error while no set can be created.
func (r *ClusterMachineDeploymentReconciler) prepare(ctx context.Context, seen *deploymentSnapshot) error {
	if seen.cluster == nil {
		return fmt.Errorf("there is no Cluster %s, which spec.clusterName names: make it",
			seen.deployment.Spec.ClusterName)
	}
	var failures []error
	template := seen.deployment.Spec.Template.Spec
	for _, ref := range []clusterv1.ContractVersionedObjectReference{template.Bootstrap.ConfigRef,
		template.InfrastructureRef} {
		if ref.IsDefined() {
			_, err := r.references.Get(ctx, ref, seen.deployment.Namespace)
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// end deletes the sets of a deployment that is being deleted, and removes the finalizer when they are gone. If
// dependents are orphaned, the garbage collector removes their owner references first.
func (r *ClusterMachineDeploymentReconciler) end(ctx context.Context, seen *deploymentSnapshot) error {
	if controllerutil.ContainsFinalizer(seen.deployment, metav1.FinalizerOrphanDependents) {
		return nil
	}
	for _, set := range seen.sets {
		if set.DeletionTimestamp != nil {
			continue
		}
		if err := r.deleteSet(ctx, set); err != nil {
			return err
		}
	}
	after := &clusterv1.MachineDeployment{ObjectMeta: *seen.deployment.ObjectMeta.DeepCopy()}
	if len(seen.sets) > 0 || !controllerutil.RemoveFinalizer(after, clusterv1.MachineDeploymentFinalizer) {
		return nil
	}
	before := &clusterv1.MachineDeployment{ObjectMeta: seen.deployment.ObjectMeta}
	return client.IgnoreNotFound(patch.WithLock(ctx, r.cached, after, before))
}

// deleteSet deletes a set if it has not changed: the garbage collector may have made it an orphan meanwhile.
func (r *ClusterMachineDeploymentReconciler) deleteSet(ctx context.Context, set *clusterv1.MachineSet) error {
	err := patch.DeleteWithLock(ctx, r.cached, set)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete MachineSet %s: %w", set.Name, err)
	}
	return nil
}

func (r *ClusterMachineDeploymentReconciler) recordEvent(seen *deploymentSnapshot, reason, message string,
	arguments ...any) {
	r.recorder.Eventf(seen.deployment, nil, corev1.EventTypeNormal, reason, "Rollout", message, arguments...)
}
