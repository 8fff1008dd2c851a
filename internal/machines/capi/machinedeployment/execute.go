package machinedeployment

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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

// claim sets the finalizer, the labels and the revision of the deployment, and makes the Cluster its owner. Only the
// metadata is compared and written, since the snapshot has defaults in the spec.
func (r *Reconciler) claim(ctx context.Context, s *snapshot) error {
	before := &clusterv1.MachineDeployment{ObjectMeta: s.deployment.ObjectMeta}
	claimed := before.DeepCopy()
	metav1.SetMetaDataLabel(&claimed.ObjectMeta, clusterv1.ClusterNameLabel, s.deployment.Spec.ClusterName)
	if s.rollout.revision != "" {
		metav1.SetMetaDataAnnotation(&claimed.ObjectMeta, clusterv1.RevisionAnnotation, s.rollout.revision)
	}
	if err := r.Claim(ctx, before, claimed, clusterv1.MachineDeploymentFinalizer, s.cluster); err != nil {
		return err
	}
	s.deployment.ObjectMeta = claimed.ObjectMeta
	return nil
}

// execute adopts sets, or executes the plan if no set must be adopted.
func (r *Reconciler) execute(ctx context.Context, s *snapshot) error {
	if s.undecided != nil {
		return nil
	}
	if len(s.orphans) > 0 {
		return r.adopt(ctx, s)
	}
	for _, change := range s.rollout.changes {
		if err := r.change(ctx, s, change); err != nil {
			return err
		}
	}
	for _, set := range s.obsolete() {
		if err := r.deleteSet(ctx, set); err != nil {
			return err
		}
		r.recordEvent(s, "SuccessfulDelete", "Deleted MachineSet %q", set.Name)
	}
	return nil
}

// adopt makes the deployment the controller of its sets. The next reconciliation, which follows, plans with them.
func (r *Reconciler) adopt(ctx context.Context, s *snapshot) error {
	for _, set := range s.orphans {
		adopted := set.DeepCopy()
		adopted.OwnerReferences = append(adopted.OwnerReferences, controllerOf(s.deployment))
		if err := patch.WithLock(ctx, r.Client, adopted, set); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("adopt MachineSet %s: %w", set.Name, err)
		}
		r.recordEvent(s, "SuccessfulAdopt", "Adopted MachineSet %q", set.Name)
	}
	return nil
}

// change creates or changes a set, and records an event.
func (r *Reconciler) change(ctx context.Context, s *snapshot, change setChange) error {
	step := change.step
	if change.before == nil {
		if err := r.prepare(ctx, s); err != nil {
			return err
		}
	}
	if err := contract.Apply(ctx, r.Client, change.desired, fieldManager); err != nil {
		return err
	}
	if change.before == nil {
		r.recordEvent(s, "SuccessfulCreate", "Created MachineSet %s/%s with %d replicas", s.deployment.Namespace,
			step.Set, step.To)
	}
	ctrl.LoggerFrom(ctx).Info("MachineSet changed", "machineSet", step.Set, "replicas", step.To, "reasons",
		step.Reasons)
	switch {
	case change.before != nil && step.To > step.From:
		r.recordEvent(s, "SuccessfulScale", "Scaled up MachineSet %s: %d -> %d", step.Set, step.From, step.To)
	case step.To < step.From:
		r.recordEvent(s, "SuccessfulScale", "Scaled down MachineSet %s: %d -> %d", step.Set, step.From, step.To)
	}
	return nil
}

// prepare returns an error while no set can be created.
func (r *Reconciler) prepare(ctx context.Context, s *snapshot) error {
	if s.cluster == nil {
		return fmt.Errorf("the Cluster %s of spec.clusterName does not exist: create it",
			s.deployment.Spec.ClusterName)
	}
	var failures []error
	template := s.deployment.Spec.Template.Spec
	for _, ref := range []contract.Reference{template.Bootstrap.ConfigRef,
		template.InfrastructureRef} {
		if ref.IsDefined() {
			_, err := r.references.Get(ctx, ref, s.deployment.Namespace)
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// end deletes the sets of a deployment, and removes its finalizer when no set is left. If dependents are orphaned, the
// garbage collector removes their owner references first.
func (r *Reconciler) end(ctx context.Context, s *snapshot) error {
	if controllerutil.ContainsFinalizer(s.deployment, metav1.FinalizerOrphanDependents) {
		return nil
	}
	for _, set := range s.sets {
		if set.DeletionTimestamp != nil {
			continue
		}
		if err := r.deleteSet(ctx, set); err != nil {
			return err
		}
	}
	if len(s.sets) > 0 {
		return nil
	}
	ended := &clusterv1.MachineDeployment{ObjectMeta: *s.deployment.ObjectMeta.DeepCopy()}
	return client.IgnoreNotFound(patch.RemoveFinalizer(ctx, r.Client, ended, clusterv1.MachineDeploymentFinalizer))
}

// deleteSet deletes a set if it has not changed: the garbage collector may have made it an orphan meanwhile.
func (r *Reconciler) deleteSet(ctx context.Context, set *clusterv1.MachineSet) error {
	err := patch.DeleteWithLock(ctx, r.Client, set)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete MachineSet %s: %w", set.Name, err)
	}
	return nil
}

// judge sets the condition UpToDate of each machine, in the snapshot too, from which the status of the deployment is
// computed.
func (r *Reconciler) judge(ctx context.Context, s *snapshot) (err error) {
	if s.invalid != "" {
		return nil
	}
	for _, set := range s.sets {
		machines, missing := s.machines[set.UID], s.missing(set)
		for i, machine := range machines {
			if machines[i], err = r.SetUpToDate(ctx, machine, missing); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Reconciler) recordEvent(s *snapshot, reason, message string, arguments ...any) {
	r.Events.Eventf(s.deployment, nil, corev1.EventTypeNormal, reason, "Rollout", message, arguments...)
}
