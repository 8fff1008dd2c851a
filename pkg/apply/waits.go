package apply

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/ready"
	"github.com/runlevel/runlevel/pkg/reason"
	"github.com/runlevel/runlevel/pkg/record"
)

// A Wait is something that is waited for.
type Wait struct {
	ID      kinds.ID      `json:"object"`
	File    string        `json:"file"`
	Node    string        `json:"node,omitempty"`
	For     string        `json:"for"`
	Since   time.Time     `json:"since"`         // by the server's clock
	Why     []string      `json:"why,omitempty"` // what keeps its pods
	Reason  string        `json:"reason,omitempty"`
	Effect  reason.Effect `json:"effect,omitempty"`
	IsRetry bool          `json:"retrying,omitempty"` // it is not applied yet: it failed, and is tried again
}

// saveWaits is how often the record is told what is waited for.
const saveWaits = 30 * time.Second

// waits is all that is waited for now: steps that are tried again, and objects that are
// not ready. With why, those that have pods say what keeps them.
func (r *run) waits(ctx context.Context, why bool) []Wait {
	r.mu.Lock()
	var waits []Wait
	for _, i := range slices.Sorted(maps.Keys(r.retries)) {
		waits = append(waits, r.retries[i])
	}
	r.mu.Unlock()
	for _, w := range r.follow.waiting() {
		wait := Wait{
			ID: w.manifest.ID(), File: w.manifest.Path, Node: nodeName(w.manifest), For: w.verdict.Message,
			Since: r.serverTime(w.since), Reason: w.verdict.Reason, Effect: w.verdict.Effect,
		}
		if why {
			wait.Why = r.why(ctx, w)
		}
		waits = append(waits, wait)
	}
	return waits
}

// tellWaits tells of waits from time to time, and notes them in the record, until the
// function that it returns is called.
func (r *run) tellWaits(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(r.options.TellWaits)
		defer ticker.Stop()
		var saved time.Time
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			waits := r.waits(ctx, true)
			for _, wait := range waits {
				r.tellWait(wait)
			}
			if time.Since(saved) >= saveWaits {
				saved = time.Now()
				r.noteWaits(waits)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// tellWait tells of one wait.
func (r *run) tellWait(wait Wait) {
	r.telling.Lock()
	defer r.telling.Unlock()
	r.options.Tell(Event{
		Time: r.cluster.Now().UTC(), Type: Waiting, Object: &wait.ID, File: wait.File, Node: wait.Node,
		Reason: wait.Reason, Message: wait.For, Since: &wait.Since, Why: wait.Why,
	})
}

// noteWaits lets others know, who look at the record.
func (r *run) noteWaits(waits []Wait) {
	const enough = 20                                                   // for somebody to read
	_ = r.options.Journal.Note(r.requests, func(known *record.Record) { // if it fails, the next may not
		known.Waits = nil
		for _, wait := range waits[:min(enough, len(waits))] {
			known.Waits = append(known.Waits, record.Wait{Object: wait.ID, For: wait.For, Since: metav1.NewTime(wait.Since)})
		}
	})
}

// logLines is how much of a container's log is shown.
const logLines = 5

// why asks what keeps the pods of a workload.
func (r *run) why(ctx context.Context, w watched) []string {
	selector := podSelector(w.object)
	if selector == nil {
		return nil
	}
	namespace := w.manifest.Object().GetNamespace()
	core := r.cluster.Client.CoreV1()
	pods, err := core.Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(selector), Limit: 100})
	if err != nil {
		return nil // the wait is told without it
	}
	var events []corev1.Event
	about := []string{w.object.GetName()}
	for i := range pods.Items {
		about = append(about, pods.Items[i].Name)
	}
	for _, name := range about[:min(len(about), logLines)] {
		found, err := core.Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.name", name).String(), Limit: 100})
		if err == nil {
			events = append(events, found.Items...)
		}
	}
	var why []string
	for _, trouble := range ready.Troubles(pods.Items, events) {
		why = append(why, trouble.Object+": "+trouble.Message)
		if trouble.WantsLog {
			why = append(why, r.lastLines(ctx, namespace, trouble)...)
		}
	}
	return why
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

// podSelector is how an object selects its pods; nil if it has none.
func podSelector(object *unstructured.Unstructured) *metav1.LabelSelector {
	if object == nil {
		return nil
	}
	fields, found, _ := unstructured.NestedMap(object.Object, "spec", "selector")
	if group := object.GroupVersionKind().Group; !found || group != "apps" && group != "batch" {
		return nil
	}
	selector := &metav1.LabelSelector{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, selector) != nil {
		return nil
	}
	return selector
}
