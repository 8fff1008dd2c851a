package drain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// Evict evicts the pods of a node, once, each by its rule, and returns the remaining ones. The pods with the lowest
// order are evicted, the others wait for their turn; without rules, all are. An error concerns all pods: a permission
// is missing, or the API server does not answer; some may have been evicted nevertheless.
func Evict(ctx context.Context, client Client, node *corev1.Node, rules PodRules) ([]HeldPod, error) {
	p := newPass(client, node)
	now, waiting, err := p.turns(ctx, rules)
	if err != nil {
		return nil, err
	}
	remaining, err := p.evictAll(ctx, now)
	return append(remaining, waiting...), err
}

// turns returns the pods to evict now, and those that wait for their turn, or for their completion.
func (p *pass) turns(ctx context.Context, rules PodRules) (now []corev1.Pod, waiting []HeldPod, err error) {
	leaving, _, err := p.ruledPods(ctx, rules)
	if err != nil {
		return nil, nil, err
	}
	turn := firstTurn(leaving)
	for _, pod := range leaving {
		isNow := pod.rule.Order == turn
		switch {
		case pod.rule.Behavior == WaitCompleted && isNow:
			waiting = append(waiting, heldPod(&pod.Pod, Completion, "is waited for until it has completed"))
		case pod.rule.Behavior == WaitCompleted:
			waiting = append(waiting,
				heldPod(&pod.Pod, CompletionLater, "is waited for until it has completed, after other pods have left"))
		case isNow, pod.DeletionTimestamp != nil:
			now = append(now, pod.Pod)
		default:
			waiting = append(waiting, heldPod(&pod.Pod, Later, "is evicted after other pods have left"))
		}
	}
	return now, waiting, nil
}

// evictionsAtOnce limits how many pods of one node are evicted at the same time.
const evictionsAtOnce = 8

// evictAll evicts pods, and returns the remaining ones.
func (p *pass) evictAll(ctx context.Context, pods []corev1.Pod) ([]HeldPod, error) {
	held := make([]*HeldPod, len(pods))
	group, ctxOfGroup := errgroup.WithContext(ctx)
	group.SetLimit(evictionsAtOnce)
	for i := range pods {
		group.Go(func() (err error) {
			held[i], err = p.evict(ctxOfGroup, &pods[i])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return p.nameBudgets(ctx, pods, held), nil
}

// evict evicts a pod, and returns its hold if it still exists.
func (p *pass) evict(ctx context.Context, pod *corev1.Pod) (*HeldPod, error) {
	if pod.DeletionTimestamp != nil && !p.canEndSooner(pod) {
		h := endingPod(pod)
		return &h, nil
	}
	err := p.request(ctx, pod)
	var h HeldPod
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case pod.DeletionTimestamp != nil:
		h = endingPod(pod) // it is terminating, even if the grace period can't be shortened
	case err == nil:
		after := p.podAfterEviction(pod)
		if graceOf(after) == 0 && len(after.Finalizers) == 0 {
			return nil, nil
		}
		h = endingPod(after)
	case concernsAllPods(err):
		return nil, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, requestError(err))
	default:
		h = refusedPod(pod, err)
		h.Refusal = refusal(err)
	}
	return &h, nil
}

// canEndSooner reports whether a pod was evicted with a longer grace period before its node became unreachable.
func (p *pass) canEndSooner(pod *corev1.Pod) bool {
	return p.isUnreachable && graceOf(pod) > unreachableGrace
}

// request posts an eviction. The client's own retries are disabled: they would wait as long as the Retry-After of the
// answer, which is ten seconds for a budget that has just changed.
func (p *pass) request(ctx context.Context, pod *corev1.Pod) error {
	options := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if p.isUnreachable {
		seconds := int64(unreachableGrace.Seconds())
		options.GracePeriodSeconds = &seconds
	}
	return p.client.PolicyV1().RESTClient().Post().AbsPath("/api/v1").
		Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("eviction").
		Body(&policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: options,
		}).
		MaxRetries(0).Do(ctx).Error()
}

// podAfterEviction returns the pod as it is after its eviction, without reading it.
func (p *pass) podAfterEviction(pod *corev1.Pod) *corev1.Pod {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	switch {
	case isFinished(pod):
		grace = 0
	case p.isUnreachable:
		grace = int64(unreachableGrace.Seconds())
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	ends := metav1.NewTime(p.now.Add(time.Duration(grace) * time.Second))
	after := *pod
	after.DeletionTimestamp, after.DeletionGracePeriodSeconds = &ends, &grace
	return &after
}

// refusedPod returns a pod whose eviction failed, with the reason.
func refusedPod(pod *corev1.Pod, err error) HeldPod {
	switch {
	case budgetCause(err) != "":
		return heldPod(pod, Budget, "is held: "+budgetCause(err))
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return heldPod(pod, Ending, "is deleted with its namespace")
	case apierrors.IsConflict(err):
		return heldPod(pod, ToBeEvicted, "changed during its eviction")
	default:
		return heldPod(pod, Refused, "could not be evicted: "+requestError(err).Error())
	}
}

// refusal returns the message of the API server, with the causes if a budget is the reason.
func refusal(err error) string {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || !apierrors.IsTooManyRequests(err) || status.Status().Details == nil {
		return requestError(err).Error()
	}
	causes := make([]string, len(status.Status().Details.Causes))
	for i, cause := range status.Status().Details.Causes {
		causes[i] = cause.Message
	}
	return printable.Line(status.Status().Message + " " + strings.Join(causes, ","))
}

// budgetCause returns the API server's message about the budget that prevents the eviction; empty if there is none.
func budgetCause(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause {
				return cause.Message
			}
		}
	}
	return ""
}

// concernsAllPods reports whether the next eviction would fail in the same way: no answer, a missing permission,
// or an overloaded server.
func concernsAllPods(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return true
	}
	switch status.Status().Code {
	case http.StatusUnauthorized, http.StatusServiceUnavailable:
		return true
	case http.StatusTooManyRequests:
		return budgetCause(err) == ""
	case http.StatusForbidden:
		// An admission plugin refuses one pod with the same code, reason and details as an authorizer that refuses
		// all. Only the authorizer's message names the verb and the resource.
		return strings.Contains(err.Error(), `cannot create resource "pods/eviction"`)
	default:
		return false
	}
}

// firstTurn returns the lowest order of the pods.
func firstTurn(pods []ruledPod) int32 {
	var first int32
	for i, pod := range pods {
		if i == 0 || pod.rule.Order < first {
			first = pod.rule.Order
		}
	}
	return first
}

// nameBudgets adds the budgets to refused evictions, since the API server's answers rarely name them. An answer is kept
// if the budgets can't be read, or allow the eviction by now.
func (p *pass) nameBudgets(ctx context.Context, pods []corev1.Pod, all []*HeldPod) []HeldPod {
	var remaining []HeldPod
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
		remaining = append(remaining, *held)
	}
	return remaining
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
		h := heldPod(pod, Refused, fmt.Sprintf("has %s (%s), and the API server evicts none that has more than one",
			printable.Count(len(budgets), "PodDisruptionBudget"), strings.Join(names, ", ")))
		h.Budgets = names
		return h, true
	case allows(&budgets[0], pod):
		return HeldPod{}, false
	default:
		h := heldPod(pod, Budget, fmt.Sprintf("is held by PodDisruptionBudget %s, %s", budgets[0].Name,
			blockedReason(&budgets[0])))
		h.Budgets = []string{budgets[0].Name}
		return h, true
	}
}

// allows reports whether a budget allows the eviction of a pod. An unready pod may be evicted while enough others are
// healthy, or at any time if the budget's unhealthyPodEvictionPolicy allows it.
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
		return "whose status is not up to date yet"
	case failed != nil && failed.Status == metav1.ConditionFalse && failed.Reason == policyv1.SyncFailedReason:
		return "whose status could not be computed: " + printable.Line(failed.Message)
	default:
		return fmt.Sprintf("which allows no disruption: %d healthy, %d needed", status.CurrentHealthy,
			status.DesiredHealthy)
	}
}
