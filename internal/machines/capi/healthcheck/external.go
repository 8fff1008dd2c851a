package healthcheck

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// createRequest creates the object by which another controller remediates a machine. It has the machine's name, so that
// there is at most one. It returns the reason and message of the machine's condition ExternallyRemediated.
func (r *Reconciler) createRequest(
	ctx context.Context, ref clusterv1.MachineHealthCheckRemediationTemplateReference, m *clusterv1.Machine,
) (reason, message string, err error) {
	template := &unstructured.Unstructured{}
	template.SetGroupVersionKind(ref.GroupVersionKind())
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: ref.Name}, template); err != nil {
		message := fmt.Sprintf("Error retrieving remediation template %s %s/%s", ref.Kind, m.Namespace, ref.Name)
		return clusterv1.MachineExternallyRemediatedRemediationTemplateNotFoundReason, message,
			fmt.Errorf("get %s %s: %w", ref.Kind, ref.Name, err)
	}
	request := contract.CloneOf(template, contract.Clone{
		Namespace: m.Namespace, Name: m.Name, ClusterName: m.Spec.ClusterName,
		Owner: &metav1.OwnerReference{
			APIVersion: clusterv1.GroupVersion.String(),
			Kind:       "Machine",
			Name:       m.Name,
			UID:        m.UID,
		},
	})
	if err := r.client.Create(ctx, request); err != nil && !apierrors.IsAlreadyExists(err) {
		message := fmt.Sprintf("Error creating %s %s/%s: %s", request.GetKind(), m.Namespace, m.Name,
			printable.Line(err.Error()))
		return clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason, message,
			fmt.Errorf("create %s %s: %w", request.GetKind(), m.Name, err)
	}
	return clusterv1.MachineExternallyRemediatedWaitingForRemediationReason, "", nil
}
