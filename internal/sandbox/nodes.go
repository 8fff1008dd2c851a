package sandbox

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
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

// emulatedMinors is the number of earlier minor versions that a control plane can emulate.
const emulatedMinors = 3

// emulatedVersion returns the version, such as 1.34, that a control plane with this API server must emulate. It returns
// "" if the API server has the requested version or can't emulate that version.
func emulatedVersion(ctx context.Context, apiServer, requestedVersion string) (string, error) {
	if requestedVersion == "" {
		return "", nil
	}
	requested, err := version.ParseGeneric(requestedVersion)
	if err != nil {
		return "", fmt.Errorf("%w: Kubernetes %q is not a version such as 1.34", ErrOptions, requestedVersion)
	}
	out, err := exec.CommandContext(ctx, apiServer, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("read the version of %s: %w", apiServer, err)
	}
	actual, err := version.ParseGeneric(strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes "))
	if err != nil {
		return "", fmt.Errorf("parse the version of %s: %w", apiServer, err)
	}
	behind := int(actual.Minor()) - int(requested.Minor())
	if requested.Major() != actual.Major() || behind < 1 || behind > emulatedMinors {
		return "", nil
	}
	return fmt.Sprintf("%d.%d", requested.Major(), requested.Minor()), nil
}

// kwok simulates a node and its pods as long as it holds the node's lease. So the heartbeats of a node end when another
// holder has the lease and does not renew it. takeLease gives the lease to such a holder for a year.
const (
	takeLease = `{"spec": {"holderIdentity": "silence", "leaseDurationSeconds": 31536000, "renewTime": %q}}`
	giveLease = `{"spec": {"holderIdentity": null, "leaseDurationSeconds": 40}}`
)

// SilenceNode stops the heartbeats of a ready simulated node, until WakeNode. The node lifecycle controller
// marks the node as unreachable after Options.NodeGrace. A deleted pod on the node stays if the annotation stop-after
// delays its end: whether the lease counts for pods depends on the order in which two controllers of kwok 0.8 start.
//
// The lease is renewed a last time. The node lifecycle controller remembers the last renewal that it has seen, and
// takes any other change of a lease for a renewal that is still on its way to it.
func SilenceNode(ctx context.Context, client kubernetes.Interface, name string) error {
	return patchLease(ctx, client, name, fmt.Sprintf(takeLease, metav1.NowMicro().UTC().Format(metav1.RFC3339Micro)))
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
