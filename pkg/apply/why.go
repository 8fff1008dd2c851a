package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/ready"
	"github.com/runlevel/runlevel/pkg/reason"
)

// How much is asked about pods that do not come up: enough for somebody to read, of as
// many workloads as they look at, and no longer than they want to wait for it.
const (
	logLines      = 5
	mostExplained = 20
	explainAtOnce = 4
	mostOfAKind   = 500 // pods, or events
	explainFor    = 5 * time.Second
)

// explain says why an object will never be ready, once: what its pods say is in the
// failure itself, since they may be gone when somebody looks.
func (r *run) explain(w watched) *Failure {
	r.explaining.Lock()
	defer r.explaining.Unlock()
	r.mu.Lock()
	known := r.unready[w.manifest]
	r.mu.Unlock()
	if known != nil {
		return known
	}
	cause := w.verdict.Reason
	if cause == "" {
		cause = reasonWorkloadFailed
	}
	failure := failureOf(w.manifest, &reason.Error{Reason: cause, Effect: w.verdict.Effect, Err: errors.New(w.verdict.Message)})
	ctx, cancel := context.WithTimeout(r.requests, explainFor)
	defer cancel()
	failure.Why = r.why(ctx, w)
	r.mu.Lock()
	r.unready[w.manifest] = failure
	r.mu.Unlock()
	r.tell(w.manifest, Event{Type: Failing, Reason: failure.Reason, Message: oneLine(failure.Err), Why: failure.Why})
	return failure
}

// explainAll adds to waits what keeps the pods of their objects. Others than the first
// some go without.
func (r *run) explainAll(ctx context.Context, waits []Wait, objects []watched) {
	ctx, cancel := context.WithTimeout(ctx, explainFor)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(explainAtOnce)
	left := mostExplained
	for i := range objects {
		if podsOf(objects[i].object) == nil {
			continue
		}
		if left--; left < 0 {
			break
		}
		group.Go(func() error {
			waits[i].Why = r.why(ctx, objects[i])
			return nil
		})
	}
	_ = group.Wait()
}

// why asks what keeps the pods of a workload. If that can't be said, the wait is told
// without it.
func (r *run) why(ctx context.Context, w watched) []string {
	selection := podsOf(w.object)
	if selection == nil {
		return nil
	}
	namespace := w.object.GetNamespace()
	selection.Limit = mostOfAKind
	pods, err := r.cluster.Client.CoreV1().Pods(namespace).List(ctx, *selection)
	if err != nil {
		return nil
	}
	var why []string
	for _, trouble := range ready.Troubles(pods.Items, r.eventsAbout(ctx, w.object, pods.Items)) {
		why = append(why, trouble.Object+": "+trouble.Message)
		if trouble.WantsLog {
			why = append(why, r.lastLines(ctx, namespace, trouble)...)
		}
	}
	return why
}

// podsOf is how to find the pods of an object; nil if it has none.
func podsOf(object *unstructured.Unstructured) *metav1.ListOptions {
	if object == nil {
		return nil
	}
	kind := object.GroupVersionKind().GroupKind()
	if kind.Group == "" && kind.Kind == "Pod" {
		return &metav1.ListOptions{FieldSelector: named(object.GetName())}
	}
	selector, found, _ := unstructured.NestedMap(object.Object, "spec", "selector")
	if !found || kind.Group != "apps" && kind.Group != "batch" {
		return nil
	}
	typed := &metav1.LabelSelector{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(selector, typed) != nil {
		return nil
	}
	return &metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(typed)}
}

// eventsAbout are the events of a workload, of its pods, and of its ReplicaSets: a quota
// lets there be no pods, and it is those who say so.
func (r *run) eventsAbout(ctx context.Context, object *unstructured.Unstructured, pods []corev1.Pod) []corev1.Event {
	var events []corev1.Event
	for _, selected := range []fields.Selector{
		fields.OneTermEqualSelector("type", corev1.EventTypeWarning),
		fields.OneTermEqualSelector("reason", "SuccessfulCreate"), // after which a failure to create counts no more
	} {
		found, err := r.cluster.Client.CoreV1().Events(object.GetNamespace()).List(ctx, metav1.ListOptions{FieldSelector: selected.String(), Limit: mostOfAKind})
		if err == nil {
			events = append(events, found.Items...)
		}
	}
	names := map[string]bool{}
	for i := range pods {
		names[pods[i].Name] = true
	}
	return slices.DeleteFunc(events, func(event corev1.Event) bool {
		about := event.InvolvedObject
		if about.Kind == "Pod" {
			return !names[about.Name]
		}
		hash, isMade := strings.CutPrefix(about.Name, object.GetName()+"-")
		return about.Name != object.GetName() && (about.Kind != "ReplicaSet" || !isMade || strings.Contains(hash, "-"))
	})
}

// lastLines are the last lines that a container wrote.
func (r *run) lastLines(ctx context.Context, namespace string, trouble ready.Trouble) []string {
	_, pod, _ := strings.Cut(trouble.Object, "/")
	text, err := r.cluster.Client.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: trouble.Container, Previous: trouble.Previous, TailLines: new(int64(logLines)), LimitBytes: new(int64(4096)),
	}).DoRaw(ctx)
	if err != nil {
		return nil
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		lines = append(lines, "  | "+printable.Line(strings.TrimRight(line, "\r\n")))
	}
	return lines
}
