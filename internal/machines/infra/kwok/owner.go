package kwok

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra"
)

// waitingForMachine is the reason of an object that Cluster API has created, and that no Machine owns yet.
const waitingForMachine = "WaitingForMachine"

// isOfMachine reports whether the object belongs to a machine, of OpenShift's API or of Cluster API.
func isOfMachine(object client.Object) bool {
	return object.GetAnnotations()[infra.UIDAnnotation] != "" || clusterAPIMachineOf(object) != ""
}

// isAwaited reports whether no Machine of Cluster API owns the object yet: until then, it belongs to the set that has
// created it, which deletes it if the Machine is not created.
func isAwaited(object client.Object) bool {
	_, isOfCluster := object.GetLabels()[clusterv1.ClusterNameLabel]
	return isOfCluster && !isOfMachine(object)
}

// clusterAPIMachineOf returns the name of the Machine of Cluster API that owns the object; empty if there is none.
func clusterAPIMachineOf(object client.Object) string {
	for _, owner := range object.GetOwnerReferences() {
		if owner.APIVersion == clusterv1.GroupVersion.String() && owner.Kind == "Machine" {
			return owner.Name
		}
	}
	return ""
}

// versionOf returns the version of the Machine of an object; empty if it has none.
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
