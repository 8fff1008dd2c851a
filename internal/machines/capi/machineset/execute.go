package machineset

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/runlevel/runlevel/internal/machines/capi/machinetemplate"
	"github.com/runlevel/runlevel/internal/machines/contract"
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
	return contract.IsOwnerOfKind(owner, "Cluster", "MachineDeployment")
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

// fieldManager is that of Cluster API's own controller: each controller can change and remove the fields that the other
// has set.
const fieldManager = client.FieldOwner("capi-machineset")

// template returns the template of the set's machines.
func (s *snapshot) template() machinetemplate.Template {
	set, spec := s.set, s.set.Spec.Template.Spec
	spec.ClusterName = set.Spec.ClusterName
	own := map[string]string{
		clusterv1.ClusterNameLabel:    spec.ClusterName,
		clusterv1.MachineSetNameLabel: machinetemplate.LabelValue(set.Name),
	}
	if name, ok := set.Labels[clusterv1.MachineDeploymentNameLabel]; ok {
		own[clusterv1.MachineDeploymentNameLabel] = name
	}
	return machinetemplate.Template{
		Namespace:   set.Namespace,
		Owner:       controllerOf(set),
		Labels:      labels.Merge(set.Spec.Template.Labels, own),
		Annotations: set.Spec.Template.Annotations,
		Spec:        spec,
	}
}

// createMachine creates a machine, and returns its name. If a template is missing, the set is reconciled when the
// template is created.
func (r *Reconciler) createMachine(ctx context.Context, s *snapshot) (string, error) {
	spec := s.set.Spec
	name, err := machinetemplate.NewName(spec.MachineNaming.Template, spec.ClusterName, "machineSet", s.set.Name)
	if err != nil {
		return "", err
	}
	err = r.machines.Create(ctx, s.template(), name)
	if apierrors.IsNotFound(err) {
		machine := spec.Template.Spec
		err = errors.Join(err, r.awaitTemplate(ctx, machine.InfrastructureRef),
			r.awaitTemplate(ctx, machine.Bootstrap.ConfigRef))
	}
	return name, err
}

// propagate updates the fields of machines that can change without a new machine.
func (r *Reconciler) propagate(ctx context.Context, s *snapshot) error {
	if s.invalid != "" {
		return nil
	}
	template := s.template()
	var behind []*clusterv1.Machine
	for _, m := range s.replicas {
		machine := s.machines[m.Name]
		if m.Owner == replicas.Ours && m.IsSelected && !template.IsCurrent(machine) {
			behind = append(behind, machine)
		}
	}
	_, err := replicas.InParallel(len(behind), requests, func(i int) error {
		return r.machines.Propagate(ctx, template, behind[i])
	})
	if err != nil {
		return fmt.Errorf("update machines from the template: %w", err)
	}
	return nil
}
