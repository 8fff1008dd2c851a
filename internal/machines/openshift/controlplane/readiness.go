package controlplane

import (
	"slices"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/machines/enqueue"
)

// nodeGrace is how long a node of a running machine may not be ready, because it restarts for example, before its
// machine counts as not ready. It is OpenShift's.
const nodeGrace = 20 * time.Minute

// readinessOf reports whether a machine is ready: it runs, or is being deleted, and its node is ready. A running one
// stays so for a while after its node has ceased to be ready; after is when that ends, or zero.
func readinessOf(m *machinev1beta1.Machine, nodes []corev1.Node, now time.Time) (isReady bool, after time.Duration) {
	name := enqueue.NodeName(m)
	at := slices.IndexFunc(nodes, func(node corev1.Node) bool { return name != "" && node.Name == name })
	phase := ptr.Deref(m.Status.Phase, "")
	if at < 0 || phase != machinev1beta1.PhaseRunning && phase != machinev1beta1.PhaseDeleting {
		return false, 0
	}
	ready := NodeReady(&nodes[at])
	if ready.Status == corev1.ConditionTrue {
		return true, 0
	}
	left := ready.LastTransitionTime.Add(nodeGrace).Sub(now)
	if ready.Status == "" || phase != machinev1beta1.PhaseRunning || left <= 0 {
		return false, 0
	}
	return true, left
}

// NodeReady returns the condition Ready of a node, or an empty one.
func NodeReady(node *corev1.Node) corev1.NodeCondition {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition
		}
	}
	return corev1.NodeCondition{}
}
