package sandbox

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// createNodes creates the simulated nodes, as their kubelets would.
func createNodes(ctx context.Context, client kubernetes.Interface, count int) error {
	for i := range count {
		_, err := client.CoreV1().Nodes().Create(ctx, newNode(fmt.Sprintf("node-%d", i)), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create a node: %w", err)
		}
	}
	return nil
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			corev1.LabelHostname:   name,
			corev1.LabelOSStable:   "linux",
			corev1.LabelArchStable: "amd64",
		},
	}}
}

// isSchedulable reports whether pods can be scheduled to a node: it is ready, and the node lifecycle controller, if it
// runs, has removed its taint.
func isSchedulable(node *corev1.Node, awaitsTaint bool) bool {
	for _, taint := range node.Spec.Taints {
		if awaitsTaint && taint.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
