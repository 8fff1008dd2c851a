package kwok

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra"
)

// waitingForMachine is the reason of an object that Cluster API has made, and that is no Machine's yet.
const waitingForMachine = "WaitingForMachine"

// isOfMachine says whether a machine has the object as its own, be it of OpenShift or of Cluster API.
func isOfMachine(object client.Object) bool {
	return object.GetAnnotations()[infra.UIDAnnotation] != "" || clusterAPIMachineOf(object) != ""
}

// isAwaited says whether Cluster API is yet to give the object to a Machine: until then, it belongs to the set that has
// made it, which deletes it if no Machine comes to be.
func isAwaited(object client.Object) bool {
	_, isOfCluster := object.GetLabels()[clusterv1.ClusterNameLabel]
	return isOfCluster && !isOfMachine(object)
}

// clusterAPIMachineOf returns the name of the Machine of Cluster API whose own the object is; empty if there is none.
func clusterAPIMachineOf(object client.Object) string {
	for _, owner := range object.GetOwnerReferences() {
		if owner.APIVersion == clusterv1.GroupVersion.String() && owner.Kind == "Machine" {
			return owner.Name
		}
	}
	return ""
}

// versionOf returns the version that the Machine of an object asks for; empty if that says nothing of it.
func (r *KwokMachineReconciler) versionOf(ctx context.Context, object client.Object) (string, error) {
	name := clusterAPIMachineOf(object)
	if name == "" {
		return "", nil
	}
	machine := &clusterv1.Machine{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: object.GetNamespace(), Name: name}, machine); err != nil {
		return "", fmt.Errorf("read the version of Machine %s: %w", name, err)
	}
	return machine.Spec.Version, nil
}
