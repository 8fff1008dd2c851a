package rehearse

import (
	"context"
	"fmt"
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
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// podWatch watches the pods of the cluster during an update, and how many of those that a PodDisruptionBudget protects
// are ready.
type podWatch struct {
	stop    func()
	before  []corev1.Pod // when the update began
	after   []corev1.Pod // when it had ended
	budgets []*budget

	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod
}

// A budget is what a PodDisruptionBudget demands, and the least that it had during the update.
type budget struct {
	policyv1.PodDisruptionBudget
	selector labels.Selector
	least    int
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

// readBudgets notes the budgets that are met before the update.
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
		found := &budget{item, selector, 0}
		if found.least = w.healthy(found); found.least >= int(item.Status.DesiredHealthy) {
			w.budgets = append(w.budgets, found)
		}
	}
}

// healthy returns how many pods of a budget are ready.
func (w *podWatch) healthy(b *budget) (count int) {
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

// observe notes a change of a pod, and what it does to the budgets.
func (w *podWatch) observe(pod *corev1.Pod, isGone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[pod.UID] = pod
	if isGone {
		delete(w.pods, pod.UID)
	}
	for _, b := range w.budgets {
		if b.Namespace == pod.Namespace {
			b.least = min(b.least, w.healthy(b))
		}
	}
}

// report reports the workloads whose pods were replaced, and the budgets that were not met.
func (w *podWatch) report(ctx context.Context, r *rehearsal, before, after *payload.Payload) {
	now, err := r.cluster.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	w.after = now.Items
	old := map[kinds.ID]*payload.Manifest{}
	for _, m := range manifestsOf(before) {
		old[m.ID()] = m
	}
	for _, m := range after.Manifests {
		if !m.IsTombstone() && m.ID().GroupKind() != kinds.Job {
			w.reportReplaced(r, old[m.ID()], m)
		}
	}
	for _, b := range w.budgets {
		if b.least < int(b.Status.DesiredHealthy) {
			b.report(r, after)
		}
	}
}

// report reports that a budget was not met, at its manifest if the release has it.
func (b *budget) report(r *rehearsal, release *payload.Payload) {
	id := kinds.ID{Group: policyv1.GroupName, Kind: "PodDisruptionBudget", Namespace: b.Namespace, Name: b.Name}
	seen := lint.RehearsalObservation{Rule: lint.RehearsalBudget, Object: id.String(), Message: fmt.Sprintf(
		"it demands %s, and during the update there were %d",
		printable.Count(int(b.Status.DesiredHealthy), "healthy pod"), b.least)}
	for _, m := range release.Manifests {
		if m.ID() == id {
			seen.Path, seen.Line, seen.Field = m.Path, m.Line, []string{"spec"}
		}
	}
	r.found.add(seen)
}

// reportReplaced reports a workload whose pods from before the update are gone.
func (w *podWatch) reportReplaced(r *rehearsal, before, after *payload.Manifest) {
	path := references.PodSpec(after.ID().GroupKind())
	selected, found, _ := unstructured.NestedMap(after.Object().Object, "spec", "selector", "matchLabels")
	if len(path) < 2 || !found {
		return
	}
	was, is := podsOf(w.before, after.ID().Namespace, selected), podsOf(w.after, after.ID().Namespace, selected)
	total, gone, made := len(was), 0, 0
	for uid := range was {
		if !is[uid] {
			gone++
		}
	}
	for uid := range is {
		if !was[uid] {
			made++
		}
	}
	replaced := min(gone, made) // others were only scaled down or up
	if replaced == 0 {
		return
	}
	why := "its template has not changed"
	if before == nil {
		why = "what has changed is not known without the files of the release before"
	} else if changed := changedFields(before, after, path[:len(path)-1]); len(changed) > 0 {
		why = "changed: " + strings.Join(changed, ", ")
	}
	r.found.about(after, lint.RehearsalObservation{
		Rule:    lint.RehearsalRestarted,
		Message: fmt.Sprintf("the update replaces %d of its %s: %s", replaced, printable.Count(total, "pod"), why),
	})
}

// podsOf returns the pods that a workload selects, without those that are being deleted.
func podsOf(pods []corev1.Pod, namespace string, selected map[string]any) map[types.UID]bool {
	found := map[types.UID]bool{}
	for _, pod := range pods {
		if pod.Namespace == namespace && pod.DeletionTimestamp == nil && matches(selected, pod.Labels) {
			found[pod.UID] = true
		}
	}
	return found
}

// matches reports whether labels have all that a selector demands.
func matches(selected map[string]any, has map[string]string) bool {
	for key, value := range selected {
		if has[key] != fmt.Sprint(value) {
			return false
		}
	}
	return true
}

// mostFields is how many changed fields are named.
const mostFields = 3

// changedFields names the fields of a template that have changed.
func changedFields(before, after *payload.Manifest, path []string) (names []string) {
	was, _, _ := unstructured.NestedMap(before.Object().Object, path...)
	is, _, _ := unstructured.NestedMap(after.Object().Object, path...)
	changes := fields.Diff(was, is)
	for i, change := range changes {
		if i == mostFields {
			return append(names, fmt.Sprintf("%d more fields", len(changes)-i))
		}
		names = append(names, strings.Join(path, ".")+"."+change.Path.String())
	}
	return names
}
