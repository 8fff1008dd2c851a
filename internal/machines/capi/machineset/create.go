package machineset

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/runlevel/runlevel/internal/machines/capi/machinetemplate"
)

// The field managers are those of Cluster API's own controller: each controller can change and remove the fields that
// the other has set.
const (
	fieldManager         = client.FieldOwner("capi-machineset")
	metadataFieldManager = client.FieldOwner("capi-machineset-metadata")
)

// templateOf returns the template of a set's machines.
func templateOf(set *clusterv1.MachineSet) machinetemplate.Template {
	spec := set.Spec.Template.Spec
	spec.ClusterName = set.Spec.ClusterName
	return machinetemplate.Template{
		Namespace: set.Namespace, Owner: controllerOf(set), Labels: machineLabels(set),
		Annotations: set.Spec.Template.Annotations, Spec: spec,
	}
}

// machineLabels returns the labels of a set's machines.
func machineLabels(set *clusterv1.MachineSet) map[string]string {
	own := map[string]string{
		clusterv1.ClusterNameLabel:    set.Spec.ClusterName,
		clusterv1.MachineSetNameLabel: machinetemplate.LabelValue(set.Name),
	}
	if name, ok := set.Labels[clusterv1.MachineDeploymentNameLabel]; ok {
		own[clusterv1.MachineDeploymentNameLabel] = name
	}
	return labels.Merge(set.Spec.Template.Labels, own)
}

// createMachine creates a machine, and returns its name. If a template is missing, the set is reconciled when it is
// created.
func (r *Reconciler) createMachine(ctx context.Context, set *clusterv1.MachineSet) (string, error) {
	name, err := machinetemplate.NewName(set.Spec.MachineNaming.Template, set.Spec.ClusterName, "machineSet", set.Name)
	if err != nil {
		return "", err
	}
	template := templateOf(set)
	err = r.machines.Create(ctx, template, name)
	if apierrors.IsNotFound(err) {
		err = errors.Join(err, r.awaitTemplate(ctx, template.Spec.InfrastructureRef),
			r.awaitTemplate(ctx, template.Spec.Bootstrap.ConfigRef))
	}
	return name, err
}
