package precondition

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Limits of the check of budgets.
const (
	maxBudgets     = 1000 // budgets that are read
	maxBudgetPairs = 20   // pairs of budgets whose pods are compared
)

// drainsNodes reports whether an update with the release may drain Nodes: the release is the cluster's own, or it has
// machines.
func drainsNodes(p *payload.Payload, release string) bool {
	for _, m := range p.Manifests {
		group := m.GroupVersionKind().Group
		if group == "machine.openshift.io" || strings.HasSuffix(group, "cluster.x-k8s.io") {
			return true
		}
	}
	return release == payload.DefaultName
}

// readBudgets finds budgets that block drains. Without the right to list PodDisruptionBudgets, it finds none.
func (f *Facts) readBudgets(ctx context.Context, c *cluster.Cluster) {
	if !drainsNodes(f.Payload, f.Record.Release) {
		return
	}
	list, err := c.Client.PolicyV1().PodDisruptionBudgets("").List(ctx, metav1.ListOptions{Limit: maxBudgets})
	if err != nil {
		return
	}
	for i := range list.Items {
		if blocking := judgeBudget(&list.Items[i]); blocking != nil {
			f.Budgets = append(f.Budgets, *blocking)
		}
	}
	f.Budgets = append(f.Budgets, findOverlaps(ctx, c, list.Items)...)
}

// findOverlaps finds pairs of budgets that select the same pod.
func findOverlaps(ctx context.Context, c *cluster.Cluster, budgets []policyv1.PodDisruptionBudget) []Obstacle {
	var found []Obstacle
	compared := 0
	for i := range budgets {
		for j := range budgets[:i] {
			first, second := &budgets[j], &budgets[i]
			if !mayOverlap(first, second) {
				continue
			}
			if compared++; compared > maxBudgetPairs {
				return found
			}
			if pod := commonPod(ctx, c, first, second); pod != "" {
				found = append(found, Obstacle{
					ID: budgetID(first), Resolution: "changing the selector of one of them",
					Why: fmt.Sprintf("selects pods of %s, too, such as %s: the API server evicts no pod of two budgets",
						budgetID(second), pod),
				})
			}
		}
	}
	return found
}

func budgetID(budget *policyv1.PodDisruptionBudget) kinds.ID {
	return kinds.NewID(kinds.PodDisruptionBudget, budget.Namespace, budget.Name)
}

// judgeBudget returns why a budget blocks drains; nil if it does not, or selects no pods.
func judgeBudget(budget *policyv1.PodDisruptionBudget) *Obstacle {
	status := budget.Status
	condition := meta.FindStatusCondition(status.Conditions, policyv1.DisruptionAllowedCondition)
	found := &Obstacle{ID: budgetID(budget)}
	if condition != nil {
		found.Since = condition.LastTransitionTime.Time
	}
	switch {
	case status.DisruptionsAllowed > 0:
		return nil
	case condition != nil && condition.Reason == policyv1.SyncFailedReason:
		found.Why, found.Resolution = "allows no evictions: "+printable.Line(condition.Message),
			"correcting its selector"
	case status.ExpectedPods == 0:
		return nil
	case status.DesiredHealthy >= status.ExpectedPods:
		found.Why = fmt.Sprintf("never allows an eviction: %d of %s must be healthy", status.DesiredHealthy,
			printable.Count(int(status.ExpectedPods), "pod"))
		found.Resolution = "adding replicas, or changing its minAvailable or maxUnavailable"
	default:
		found.Why = fmt.Sprintf("allows no evictions: %d of %s are healthy, and %d must be", status.CurrentHealthy,
			printable.Count(int(status.ExpectedPods), "pod"), status.DesiredHealthy)
		found.Resolution = "making its pods healthy"
	}
	return found
}

// mayOverlap reports whether two budgets may select the same pod. Budgets that demand different values of one label do
// not.
func mayOverlap(a, b *policyv1.PodDisruptionBudget) bool {
	if a.Namespace != b.Namespace || a.Spec.Selector == nil || b.Spec.Selector == nil {
		return false
	}
	for key, value := range a.Spec.Selector.MatchLabels {
		if other, isSet := b.Spec.Selector.MatchLabels[key]; isSet && other != value {
			return false
		}
	}
	return true
}

// commonPod returns the name of a pod that two budgets select; "" if there is none.
func commonPod(ctx context.Context, c *cluster.Cluster, a, b *policyv1.PodDisruptionBudget) string {
	selector, errA := metav1.LabelSelectorAsSelector(a.Spec.Selector)
	other, errB := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if errA != nil || errB != nil {
		return ""
	}
	requirements, _ := other.Requirements()
	pods, err := c.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(a.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: selector.Add(requirements...).String(), Limit: 1,
			FieldSelector: runningPods})
	if err != nil || len(pods.Items) == 0 {
		return ""
	}
	return pods.Items[0].Name
}
