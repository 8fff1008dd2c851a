package rehearse

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// podWatch watches the pods of the cluster during an update, and counts the ready pods of each PodDisruptionBudget.
type podWatch struct {
	stop    func()
	before  []corev1.Pod // the pods at the beginning of the update
	after   []corev1.Pod // the pods at its end
	budgets []*budget

	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod
}

// A budget is a PodDisruptionBudget, with the lowest number of its healthy pods during the update.
type budget struct {
	policyv1.PodDisruptionBudget
	selector labels.Selector
	lowest   int
}

// watchPods begins to watch the pods.
func (r *rehearsal) watchPods(ctx context.Context) *podWatch {
	w := &podWatch{stop: func() {}, pods: map[types.UID]*corev1.Pod{}}
	client := r.cluster.Client
	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return w
	}
	w.before = list.Items
	for i := range list.Items {
		w.pods[list.Items[i].UID] = &list.Items[i]
	}
	w.readBudgets(ctx, r)
	changes, err := client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return w
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range changes.ResultChan() {
			if pod, isPod := event.Object.(*corev1.Pod); isPod {
				w.observe(pod, event.Type == "DELETED")
			}
		}
	}()
	w.stop = func() {
		changes.Stop()
		<-ended
	}
	return w
}

// readBudgets records the budgets that have enough healthy pods before the update.
func (w *podWatch) readBudgets(ctx context.Context, r *rehearsal) {
	all, err := r.cluster.Client.PolicyV1().PodDisruptionBudgets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, item := range all.Items {
		selector, err := metav1.LabelSelectorAsSelector(item.Spec.Selector)
		if err != nil {
			continue
		}
		candidate := &budget{item, selector, 0}
		if candidate.lowest = w.countHealthy(candidate); candidate.lowest >= int(item.Status.DesiredHealthy) {
			w.budgets = append(w.budgets, candidate)
		}
	}
}

// countHealthy returns the number of ready pods of a budget.
func (w *podWatch) countHealthy(b *budget) (count int) {
	for _, pod := range w.pods {
		if pod.Namespace == b.Namespace && b.selector.Matches(labels.Set(pod.Labels)) && isReady(pod) {
			count++
		}
	}
	return count
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// observe records a change of a pod, and its effect on the budgets.
func (w *podWatch) observe(pod *corev1.Pod, isDeleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[pod.UID] = pod
	if isDeleted {
		delete(w.pods, pod.UID)
	}
	for _, b := range w.budgets {
		if b.Namespace == pod.Namespace {
			b.lowest = min(b.lowest, w.countHealthy(b))
		}
	}
}

// report reports the workloads whose pods were replaced, and the budgets that were not met.
func (w *podWatch) report(ctx context.Context, r *rehearsal, after *payload.Payload) {
	now, err := r.cluster.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	w.after = now.Items
	for _, m := range after.Manifests {
		if !m.IsTombstone() && m.ID().GroupKind() != kinds.Job {
			w.reportReplaced(r, r.old[m.ID()], m)
		}
	}
	for _, b := range w.budgets {
		if b.lowest < int(b.Status.DesiredHealthy) {
			id := kinds.NewID(kinds.PodDisruptionBudget, b.Namespace, b.Name)
			observation := newObservation(lint.RehearsalBudget,
				"requires %s; at one time during the update there were %d",
				printable.Count(int(b.Status.DesiredHealthy), "healthy pod"), b.lowest)
			observation.Field = []string{"spec"}
			r.findings.addForObject(id, observation)
		}
	}
}

// reportReplaced reports a workload whose pods the update has replaced.
func (w *podWatch) reportReplaced(r *rehearsal, before, after *payload.Manifest) {
	path := kinds.PodSpec(after.ID().GroupKind())
	selector, hasSelector, _ := unstructured.NestedMap(after.Object().Object, "spec", "selector", "matchLabels")
	if len(path) < 2 || !hasSelector {
		return
	}
	podsBefore := podsOf(w.before, after.ID().Namespace, selector)
	podsAfter := podsOf(w.after, after.ID().Namespace, selector)
	// Other pods were only scaled down or up.
	replaced := min(countWithout(podsBefore, podsAfter), countWithout(podsAfter, podsBefore))
	if replaced == 0 {
		return
	}
	cause := "the pod template has not changed"
	if before == nil {
		cause = "the changes are not known without the files of the previous release"
	} else if changed := changedFields(before, after, path[:len(path)-1]); len(changed) > 0 {
		cause = "changed: " + strings.Join(changed, ", ")
	}
	r.findings.addForManifest(after, newObservation(lint.RehearsalRestarted, "the update replaces %d of its %s: %s",
		replaced, printable.Count(len(podsBefore), "pod"), cause))
}

// countWithout returns the number of pods that are not among others.
func countWithout(pods, others map[types.UID]bool) (count int) {
	for uid := range pods {
		if !others[uid] {
			count++
		}
	}
	return count
}

// podsOf returns the pods that a selector matches, without pods that are being deleted.
func podsOf(pods []corev1.Pod, namespace string, selector map[string]any) map[types.UID]bool {
	found := map[types.UID]bool{}
	for _, pod := range pods {
		if pod.Namespace == namespace && pod.DeletionTimestamp == nil && matches(selector, pod.Labels) {
			found[pod.UID] = true
		}
	}
	return found
}

// matches reports whether labels have all keys and values of a selector.
func matches(selector map[string]any, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != fmt.Sprint(value) {
			return false
		}
	}
	return true
}

// maxFields limits the changed fields that a message names.
const maxFields = 3

// changedFields names the fields of a template that have changed.
func changedFields(before, after *payload.Manifest, path []string) (names []string) {
	oldTemplate, _, _ := unstructured.NestedMap(before.Object().Object, path...)
	newTemplate, _, _ := unstructured.NestedMap(after.Object().Object, path...)
	changes := slices.DeleteFunc(fields.Diff(oldTemplate, newTemplate), func(change fields.Difference) bool {
		return fields.IsSamePod(change, newTemplate)
	})
	for i, change := range changes {
		if i == maxFields {
			return append(names, fmt.Sprintf("%d more fields", len(changes)-i))
		}
		names = append(names, strings.Join(path, ".")+"."+change.Path.String())
	}
	return names
}
