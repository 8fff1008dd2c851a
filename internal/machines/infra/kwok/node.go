package kwok

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
)

// makeNode creates the Node of a machine unless it exists. It returns a message if a Node of that name belongs to
// another machine.
func (r *machineReconciler) makeNode(ctx context.Context, machine *v1alpha1.KwokMachine) (string, error) {
	version, err := r.versionOf(ctx, machine)
	if err != nil {
		return "", err
	}
	err = r.Client.Create(ctx, nodeOf(machine, version))
	if err == nil {
		return "", nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("make the Node %s: %w", machine.Name, err)
	}
	existing, err := r.findNode(ctx, machine)
	if err != nil {
		return "", err
	}
	if existing != nil && existing.Spec.ProviderID != machine.Spec.ProviderID {
		return fmt.Sprintf("Node %s belongs to another machine, by its providerID %q: delete the Node, or this machine",
			existing.Name, existing.Spec.ProviderID), nil
	}
	return "", nil
}

// deleteNode deletes the Node of a machine unless it does not exist, or belongs to another machine, or the controller
// of machines deletes it.
func (r *machineReconciler) deleteNode(ctx context.Context, machine *v1alpha1.KwokMachine) error {
	node, err := r.findNode(ctx, machine)
	if err != nil || node == nil || node.Spec.ProviderID != machine.Spec.ProviderID {
		return err
	}
	if isOfMachine(machine) && deletion.OwnerOfNode(node) != "" {
		return nil
	}
	if err := r.Client.Delete(ctx, node, client.Preconditions{UID: &node.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the Node %s: %w", machine.Name, err)
	}
	return nil
}

// findNode returns the Node with a machine's name, or nil if there is none.
func (r *machineReconciler) findNode(ctx context.Context, machine *v1alpha1.KwokMachine) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := r.Reader.Get(ctx, client.ObjectKey{Name: machine.Name}, node)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at the Node %s: %w", machine.Name, err)
	}
	return node, nil
}

// nodeOf returns the Node of a machine. Its version is the Machine's unless the KwokMachine has a version.
func nodeOf(machine *v1alpha1.KwokMachine, version string) *corev1.Node {
	labels := map[string]string{corev1.LabelHostname: machine.Name}
	for key, value := range machine.Spec.Node.Labels {
		labels[key] = value
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: machine.Name, Labels: labels, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
		},
		Spec: corev1.NodeSpec{ProviderID: machine.Spec.ProviderID, Taints: machine.Spec.Node.Taints},
		Status: corev1.NodeStatus{
			Addresses: machine.Status.Addresses, Capacity: room, Allocatable: room,
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: cmp.Or(machine.Spec.Node.KubeletVersion, version),
				OSImage:        machine.Spec.Node.OSImage,
			},
		},
	}
}

// waitingForMachine is the reason of an object that Cluster API has created, and that no Machine owns yet.
const waitingForMachine = "WaitingForMachine"

// isOfMachine reports whether the object belongs to a machine, of OpenShift's API or of Cluster API.
func isOfMachine(object client.Object) bool {
	return object.GetAnnotations()[annotation.MachineUID] != "" || clusterAPIMachineOf(object) != ""
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
func (r *machineReconciler) versionOf(ctx context.Context, object client.Object) (string, error) {
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
