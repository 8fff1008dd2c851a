package machineset

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/machinetemplate"
	"github.com/runlevel/runlevel/internal/machines/replicas"
)

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
