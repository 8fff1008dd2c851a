package drain

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// A PodRule configures how draining treats a pod that it would evict.
type PodRule struct {
	Behavior PodBehavior
	// Order is the turn of the pod: it is evicted after all pods with a lower order have left.
	Order int32
}

// A PodBehavior is the treatment of a pod by draining.
type PodBehavior string

// The behaviors.
const (
	EvictPod      PodBehavior = "Drain"
	SkipPod       PodBehavior = "Skip"          // leave it alone
	WaitCompleted PodBehavior = "WaitCompleted" // wait until it has completed by itself
)

// PodRules return the rule of a pod.
type PodRules func(ctx context.Context, pod *corev1.Pod) (PodRule, error)

// StayingPods returns the pods of a node that draining leaves alone.
func StayingPods(ctx context.Context, client Client, node *corev1.Node, rules PodRules) ([]corev1.Pod, error) {
	_, staying, err := newPass(client, node).ruledPods(ctx, rules)
	return staying, err
}

// A ruledPod is a pod with its rule.
type ruledPod struct {
	corev1.Pod
	rule PodRule
}

// ruledPods returns the pods to evict or to wait for, and those that draining leaves alone. Pods that are waited for
// and have completed are left alone.
func (p *pass) ruledPods(ctx context.Context, rules PodRules) (leaving []ruledPod, staying []corev1.Pod, err error) {
	pods, staying, err := p.pods(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, pod := range pods {
		rule, err := PodRule{Behavior: EvictPod}, error(nil)
		if rules != nil {
			rule, err = rules(ctx, &pod)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("find the drain rule of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		if rule.Behavior == SkipPod || rule.Behavior == WaitCompleted && isFinished(&pod) {
			staying = append(staying, pod)
			continue
		}
		leaving = append(leaving, ruledPod{Pod: pod, rule: rule})
	}
	return leaving, staying, nil
}
