package sandbox_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestSilentNodeIsUnreachable stops the heartbeats of a node, and resumes them. Its pod stays, although it is deleted.
func TestSilentNodeIsUnreachable(t *testing.T) {
	t.Parallel()
	own := sandboxtest.New(sandbox.Options{Nodes: 2, NodeGrace: 15 * time.Second})
	s := own.Sandbox(t)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error("stop:", err)
		}
	})
	client, namespace := own.Client(t), own.Namespace(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "web",
			Annotations: map[string]string{"sandbox.runlevel.dev/stop-after": "1h"},
		},
		Spec: corev1.PodSpec{
			NodeName:   "node-1",
			Containers: []corev1.Container{{Name: "web", Image: "registry.example/web"}},
		},
	}
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, own, pods, namespace+"/web", func(p *corev1.Pod) bool {
		return p != nil && p.Status.Phase == corev1.PodRunning
	})
	if err := sandbox.SilenceNode(t.Context(), client, "node-1"); err != nil {
		t.Fatal(err)
	}
	awaitReadiness(t, own, "node-1", corev1.ConditionUnknown)
	awaitReadiness(t, own, "node-0", corev1.ConditionTrue)
	if err := client.CoreV1().Pods(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := sandbox.WakeNode(t.Context(), client, "node-1"); err != nil {
		t.Fatal(err)
	}
	awaitReadiness(t, own, "node-1", corev1.ConditionTrue)
	if _, err := client.CoreV1().Pods(namespace).Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Fatal("the deleted pod of a silent node:", err)
	}
}

func awaitReadiness(t *testing.T, own *sandboxtest.SharedSandbox, name string, ready corev1.ConditionStatus) {
	t.Helper()
	sandboxtest.Await(t, own, nodes, name, func(n *corev1.Node) bool {
		return n != nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == ready
		})
	})
}

// TestNodeKeepsItsAddresses creates a node with an address, which is also the host address of its pods.
func TestNodeKeepsItsAddresses(t *testing.T) {
	t.Parallel()
	client, namespace := cluster.Client(t), cluster.Namespace(t)
	node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "addressed-"},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "test", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.1.7"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The context of the test has ended already.
		_ = client.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
	})
	awaitReadiness(t, cluster, node.Name, corev1.ConditionTrue)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.PodSpec{
			NodeName:   node.Name,
			Containers: []corev1.Container{{Name: "web", Image: "registry.example/web"}},
		},
	}
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, cluster, pods, namespace+"/web", func(p *corev1.Pod) bool {
		return p != nil && p.Status.HostIP == "127.0.1.7"
	})
	got, err := client.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := node.Status.Addresses; !slices.Equal(got.Status.Addresses, want) {
		t.Errorf("addresses %v, want %v", got.Status.Addresses, want)
	}
}
