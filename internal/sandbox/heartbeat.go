package sandbox

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// kwok simulates a node and its pods as long as it holds the node's lease. So the heartbeats of a node end when another
// holder has the lease and does not renew it: here, for a year.
const (
	takeLease = `{"spec": {"holderIdentity": "silence", "leaseDurationSeconds": 31536000}}`
	giveLease = `{"spec": {"holderIdentity": null, "leaseDurationSeconds": 40}}`
)

// SilenceNode stops the heartbeats of a ready simulated node, until WakeNode. The node lifecycle controller
// marks the node as unreachable after Options.NodeGrace. A deleted pod on the node stays if the annotation stop-after
// delays its end: whether the lease counts for pods depends on the order in which two controllers of kwok 0.8 start.
func SilenceNode(ctx context.Context, client kubernetes.Interface, name string) error {
	return patchLease(ctx, client, name, takeLease)
}

// WakeNode resumes the heartbeats of a node, within seconds.
func WakeNode(ctx context.Context, client kubernetes.Interface, name string) error {
	return patchLease(ctx, client, name, giveLease)
}

func patchLease(ctx context.Context, client kubernetes.Interface, name, patch string) error {
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	if _, err := leases.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change the lease of node %s: %w", name, err)
	}
	return nil
}
