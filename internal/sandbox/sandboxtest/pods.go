package sandboxtest

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// EndPod ends a running pod with an exit code. A pod with the variable SANDBOX_POD=run runs until then.
func (ss *SharedSandbox) EndPod(t testing.TB, namespace, name string, exitCode int) {
	t.Helper()
	ss.annotatePod(t, namespace, name, "exit-code", strconv.Itoa(exitCode))
}

// LogPod replaces the log of a running pod. A client that follows the log reads the lines beyond those it has
// read.
func (ss *SharedSandbox) LogPod(t testing.TB, namespace, name, text string) {
	t.Helper()
	ss.annotatePod(t, namespace, name, "log", text)
}

// annotatePod sets an annotation of the sandbox on a pod.
func (ss *SharedSandbox) annotatePod(t testing.TB, namespace, name, what, value string) {
	t.Helper()
	object := map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{"sandbox.runlevel.dev/" + what: value}},
	}
	patch, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ss.Client(t).CoreV1().Pods(namespace).Patch(t.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A PodHistory records the pods of a namespace.
type PodHistory struct {
	t         testing.TB
	client    kubernetes.Interface
	namespace string
	onChange  func(now []corev1.Pod)

	mu       sync.Mutex
	now      map[types.UID]corev1.Pod
	all      map[types.UID]corev1.Pod
	observed map[string]chan struct{} // closed at the first event of the pod of this name
}

// WatchPods starts a PodHistory, which ends with the test. After each change of a pod, it calls onChange with all
// existing pods; onChange may be nil.
func WatchPods(t testing.TB, config *rest.Config, namespace string, onChange func(now []corev1.Pod)) *PodHistory {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	h := &PodHistory{
		t: t, client: client, namespace: namespace, onChange: onChange,
		now: map[types.UID]corev1.Pod{}, all: map[types.UID]corev1.Pod{}, observed: map[string]chan struct{}{},
	}
	existing, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range existing.Items {
		h.now[pod.UID], h.all[pod.UID] = pod, pod
	}
	changes, err := client.CoreV1().Pods(namespace).Watch(t.Context(),
		metav1.ListOptions{ResourceVersion: existing.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range changes.ResultChan() {
			h.record(event)
		}
	}()
	t.Cleanup(func() {
		changes.Stop()
		<-ended
	})
	return h
}

// record records a change of a pod.
func (h *PodHistory) record(event watch.Event) {
	pod, isPod := event.Object.(*corev1.Pod)
	if !isPod {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if observed := h.observed[pod.Name]; observed != nil {
		close(observed)
		delete(h.observed, pod.Name)
	}
	if _, isMark := pod.Labels[markLabel]; isMark {
		return
	}
	h.now[pod.UID], h.all[pod.UID] = *pod, *pod
	if event.Type == watch.Deleted {
		delete(h.now, pod.UID)
	}
	if h.onChange != nil {
		h.onChange(slices.Collect(maps.Values(h.now)))
	}
}

// markLabel marks the pods that catchUp creates.
const markLabel = "sandbox.runlevel.dev/mark"

// All returns the last states of all pods so far, in the order of their creation.
func (h *PodHistory) All() []corev1.Pod {
	h.t.Helper()
	h.catchUp()
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.all), func(a, b corev1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
}

// catchUp waits until the watch has received all earlier changes: it creates a pod that never runs, and waits for its
// event.
func (h *PodHistory) catchUp() {
	h.t.Helper()
	mark := "mark-" + rand.String(10)
	observed := make(chan struct{})
	h.mu.Lock()
	h.observed[mark] = observed
	h.mu.Unlock()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: mark, Labels: map[string]string{markLabel: ""}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"no": "such-node"},
			Containers:   []corev1.Container{{Name: "mark", Image: "none"}},
		}}
	pods := h.client.CoreV1().Pods(h.namespace)
	if _, err := pods.Create(h.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
	select {
	case <-observed:
	case <-h.t.Context().Done():
		h.t.Fatal("the watch of the pods has ended")
	}
	if err := pods.Delete(h.t.Context(), mark, metav1.DeleteOptions{}); err != nil {
		h.t.Fatal(err)
	}
}
