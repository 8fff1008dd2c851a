package drain

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/machines/conditions"
)

// unreachableGrace is the grace period of pods that no kubelet terminates. After that they are not waited for.
const unreachableGrace = time.Second

// A pass is one read of the pods of a node. It reads each DaemonSet, and the budgets of each namespace, at most
// once.
type pass struct {
	client        Client
	node          string
	isUnreachable bool
	now           time.Time                     // the server's time when the pods were read
	cordonedAt    metav1.Time                   // zero if the taint has no time
	daemonSets    map[types.NamespacedName]bool // whether each DaemonSet exists
	budgets       map[string][]policyv1.PodDisruptionBudget
}

func newPass(client Client, node *corev1.Node) *pass {
	return &pass{
		client: client, node: node.Name, isUnreachable: IsUnreachable(node), cordonedAt: cordonedAt(node),
		daemonSets: map[types.NamespacedName]bool{}, budgets: map[string][]policyv1.PodDisruptionBudget{},
	}
}

// IsUnreachable reports whether the node's kubelet has stopped reporting its status.
func IsUnreachable(node *corev1.Node) bool {
	return conditions.NodeReady(node).Status == corev1.ConditionUnknown
}

// pods returns the pods to evict, and those that draining leaves alone.
func (p *pass) pods(ctx context.Context) (leaving, staying []corev1.Pod, err error) {
	list, err := p.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", p.node).String(),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list the pods of node %s: %w", p.node, requestError(err))
	}
	p.now = p.client.Now()
	for _, pod := range list.Items {
		stays, err := p.stays(ctx, &pod)
		if err != nil {
			return nil, nil, err
		}
		if stays {
			staying = append(staying, pod)
		} else {
			leaving = append(leaving, pod)
		}
	}
	return leaving, staying, nil
}

// stays reports whether draining leaves a pod alone.
func (p *pass) stays(ctx context.Context, pod *corev1.Pod) (bool, error) {
	switch {
	case p.isUnreachable && pod.DeletionTimestamp != nil && p.now.Sub(pod.DeletionTimestamp.Time) > unreachableGrace:
		return true, nil
	case isMirror(pod):
		return true, nil
	case isFinished(pod):
		return false, nil
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "DaemonSet" || owner.APIVersion != appsv1.SchemeGroupVersion.String() {
		return false, nil
	}
	return p.daemonSetExists(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name})
}

// daemonSetExists reports whether a DaemonSet exists: its pods would be recreated at once.
func (p *pass) daemonSetExists(ctx context.Context, key types.NamespacedName) (bool, error) {
	if exists, ok := p.daemonSets[key]; ok {
		return exists, nil
	}
	_, err := p.client.AppsV1().DaemonSets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("look for DaemonSet %s: %w", key, requestError(err))
	}
	p.daemonSets[key] = err == nil
	return err == nil, nil
}

// isMirror reports whether a pod is a mirror of a static one, which its kubelet runs from a file.
func isMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// inspect returns the hold that a pod would have.
func (p *pass) inspect(ctx context.Context, pod *corev1.Pod) (HeldPod, error) {
	if pod.DeletionTimestamp != nil {
		return endingPod(pod), nil
	}
	budgets, err := p.budgetsOf(ctx, pod)
	if err != nil {
		return HeldPod{}, err
	}
	if held, ok := heldByBudgets(pod, budgets); ok {
		return held, nil
	}
	return heldPod(pod, ToBeEvicted, "is not evicted yet"), nil
}

// endingPod returns the hold of a terminating pod.
func endingPod(pod *corev1.Pod) HeldPod {
	grace := graceOf(pod)
	if grace == 0 && len(pod.Finalizers) > 0 {
		return heldPod(pod, Finalizers, "has terminated; its finalizers hold it: "+strings.Join(pod.Finalizers, ", "))
	}
	message := fmt.Sprintf("has been ending since %s, with %d s of grace",
		pod.DeletionTimestamp.Add(-grace).UTC().Format(time.RFC3339), int(grace.Seconds()))
	if len(pod.Finalizers) > 0 {
		message += ", and has finalizers: " + strings.Join(pod.Finalizers, ", ")
	}
	return heldPod(pod, Ending, message)
}

// graceOf returns the grace period of a pod being deleted.
func graceOf(pod *corev1.Pod) time.Duration {
	return time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
}

// heldPod returns a remaining pod, with a message that describes it.
func heldPod(pod *corev1.Pod, hold PodHold, does string) HeldPod {
	return HeldPod{
		Namespace: pod.Namespace, Name: pod.Name, Hold: hold,
		Message: fmt.Sprintf("pod %s/%s %s", pod.Namespace, pod.Name, does),
	}
}
