package drain

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// nameBudgets adds the budgets to refused evictions, since the API server's answers rarely name them. An answer is kept
// if the budgets can't be read, or allow the eviction by now.
func (p *pass) nameBudgets(ctx context.Context, pods []corev1.Pod, all []*HeldPod) []HeldPod {
	var left []HeldPod
	for i, held := range all {
		if held == nil {
			continue
		}
		if held.Hold == Budget || held.Hold == Refused {
			if budgets, err := p.budgetsOf(ctx, &pods[i]); err == nil {
				if named, ok := heldByBudgets(&pods[i], budgets); ok {
					named.Refusal = held.Refusal
					*held = named
				}
			}
		}
		left = append(left, *held)
	}
	return left
}

// budgetsOf returns the budgets that apply to a pod.
func (p *pass) budgetsOf(ctx context.Context, pod *corev1.Pod) ([]policyv1.PodDisruptionBudget, error) {
	all, ok := p.budgets[pod.Namespace]
	if !ok {
		list, err := p.client.PolicyV1().PodDisruptionBudgets(pod.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list the PodDisruptionBudgets of namespace %s: %w", pod.Namespace,
				requestError(err))
		}
		all = list.Items
		p.budgets[pod.Namespace] = all
	}
	var budgets []policyv1.PodDisruptionBudget
	for _, budget := range all {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			budgets = append(budgets, budget)
		}
	}
	return budgets, nil
}

// heldByBudgets decides like the API server whether budgets allow the eviction of a pod.
func heldByBudgets(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) (HeldPod, bool) {
	switch {
	case isFinished(pod) || pod.Status.Phase == corev1.PodPending || len(budgets) == 0:
		return HeldPod{}, false
	case len(budgets) > 1:
		names := make([]string, len(budgets))
		for i, budget := range budgets {
			names[i] = budget.Name
		}
		h := held(pod, Refused, fmt.Sprintf("has %s (%s), and the API server evicts none that has more than one",
			printable.Count(len(budgets), "PodDisruptionBudget"), strings.Join(names, ", ")))
		h.Budgets = names
		return h, true
	case allows(&budgets[0], pod):
		return HeldPod{}, false
	default:
		h := held(pod, Budget, fmt.Sprintf("is held by PodDisruptionBudget %s, %s", budgets[0].Name,
			blockedReason(&budgets[0])))
		h.Budgets = []string{budgets[0].Name}
		return h, true
	}
}

// allows reports whether a budget allows the eviction of a pod. A pod that is not ready may be evicted while enough
// others are healthy, or at any time if the budget's unhealthyPodEvictionPolicy allows it.
func allows(budget *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	policy, status := budget.Spec.UnhealthyPodEvictionPolicy, budget.Status
	if !isReady(pod) {
		if policy != nil && *policy == policyv1.AlwaysAllow {
			return true
		}
		if status.DesiredHealthy > 0 && status.CurrentHealthy >= status.DesiredHealthy {
			return true
		}
	}
	return status.DisruptionsAllowed > 0 && status.ObservedGeneration >= budget.Generation
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// blockedReason returns why a budget allows no disruption.
func blockedReason(budget *policyv1.PodDisruptionBudget) string {
	status := budget.Status
	failed := meta.FindStatusCondition(status.Conditions, policyv1.DisruptionAllowedCondition)
	switch {
	case status.ObservedGeneration < budget.Generation:
		return "which was changed and not worked out yet"
	case failed != nil && failed.Status == metav1.ConditionFalse && failed.Reason == policyv1.SyncFailedReason:
		return "which could not be worked out: " + printable.Line(failed.Message)
	default:
		return fmt.Sprintf("which allows no disruption: %d healthy, %d needed", status.CurrentHealthy,
			status.DesiredHealthy)
	}
}
