package overview

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// This file is about Machines of Cluster API that are not up to date. The rollout is decided for all machines of a
// MachineDeployment together, so its conditions are shown.

var deploymentKind = schema.GroupKind{Group: ClusterAPIKind.Group, Kind: "MachineDeployment"}

// askDeployment reads the MachineDeployment of a machine that is not up to date.
func (g *machineGatherer) askDeployment(ctx context.Context, f *clusterAPIFacts) {
	name := f.machine.Labels[clusterv1.MachineDeploymentNameLabel]
	if name == "" || f.condition(clusterv1.MachineUpToDateCondition).Reason != clusterv1.MachineNotUpToDateReason {
		return
	}
	in, err := g.cluster.FindKind(ctx, deploymentKind)
	deployment, object := &clusterv1.MachineDeployment{}, &unstructured.Unstructured{}
	if err == nil {
		object, err = g.cluster.In(in, f.machine.Namespace).Get(ctx, name, metav1.GetOptions{})
	}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment)
	}
	switch {
	case err == nil:
		f.deployment = deployment
	case !errors.Is(err, ErrNotServed) && !apierrors.IsNotFound(err):
		f.unknown = append(f.unknown, inLine(requestError("get MachineDeployment "+f.machine.Namespace+"/"+name, err)))
	}
}

// rollout returns statements about a machine that is not up to date: which fields of its MachineDeployment's template differ, why
// machines are replaced rather than updated in place, and what blocks the rollout.
func (f *clusterAPIFacts) rollout() []MachineStatement {
	if f.deployment == nil {
		return nil
	}
	statement := MachineStatement{Text: "it is not up to date; its MachineDeployment " + f.deployment.Name + " reports:"}
	for _, kind := range []string{clusterv1.RollingOutCondition, clusterv1.ScalingUpCondition} {
		if reported := meta.FindStatusCondition(f.deployment.Status.Conditions, kind); reported != nil && reported.Message != "" {
			statement.Details = append(statement.Details, strings.Split(reported.Message, "\n")...)
		}
	}
	if len(statement.Details) == 0 {
		return nil
	}
	return []MachineStatement{statement}
}
