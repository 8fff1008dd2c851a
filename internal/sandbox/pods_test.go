package sandbox_test

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

func TestPodsDoAsTheyAreTold(t *testing.T) {
	tests := map[string]struct {
		annotations map[string]string
		becomes     func(corev1.PodStatus) bool
		event       string
	}{
		"runs when told nothing": {
			becomes: func(s corev1.PodStatus) bool { return s.Phase == corev1.PodRunning && ready(s) },
		},
		"completes": {
			annotations: map[string]string{"pod": "complete"},
			becomes:     func(s corev1.PodStatus) bool { return s.Phase == corev1.PodSucceeded && !ready(s) },
		},
		"fails": {
			annotations: map[string]string{"pod": "fail"},
			becomes: func(s corev1.PodStatus) bool {
				return s.Phase == corev1.PodFailed && s.ContainerStatuses[0].State.Terminated.ExitCode == 1
			},
		},
		"crashes": {
			annotations: map[string]string{"pod": "crash", "run-for": "10ms"},
			becomes:     func(s corev1.PodStatus) bool { return waits(s, "CrashLoopBackOff") && !ready(s) },
			event:       "BackOff",
		},
		"restarts after a crash, again and again": {
			annotations: map[string]string{"pod": "crash", "run-for": "10ms"},
			becomes: func(s corev1.PodStatus) bool {
				return len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].RestartCount >= 2 &&
					s.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode == 1
			},
		},
		"can't pull its image": {
			annotations: map[string]string{"pod": "image-pull"},
			becomes:     func(s corev1.PodStatus) bool { return waits(s, "ImagePullBackOff") && s.Phase == corev1.PodPending },
			event:       "Failed",
		},
		"hangs": {
			annotations: map[string]string{"pod": "hang"},
			becomes:     func(s corev1.PodStatus) bool { return waits(s, "ContainerCreating") && s.Phase == corev1.PodPending },
		},
		"takes its time to start": {
			annotations: map[string]string{"start-after": "1s"},
			becomes:     func(s corev1.PodStatus) bool { return s.Phase == corev1.PodRunning && ready(s) },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := cluster.Namespace(t)
			pod := newPod(test.annotations)
			began := time.Now()
			if _, err := cluster.Client(t).CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			sandboxtest.Await(t, cluster, pods, namespace+"/"+pod.Name, func(p *corev1.Pod) bool {
				return p != nil && test.becomes(p.Status)
			})
			if late := test.annotations["start-after"]; late != "" && time.Since(began) < time.Second {
				t.Errorf("started after %s, want not before %s", time.Since(began), late)
			}
			if test.event != "" {
				awaitEvent(t, namespace, test.event)
			}
		})
	}
}

func TestPodTakesItsTimeToStop(t *testing.T) {
	t.Parallel()
	namespace, client := cluster.Namespace(t), cluster.Client(t)
	pod := newPod(map[string]string{"stop-after": "1s"})
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, cluster, pods, namespace+"/"+pod.Name, func(p *corev1.Pod) bool { return p != nil && ready(p.Status) })
	asked := time.Now()
	if err := client.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, cluster, pods, namespace+"/"+pod.Name, func(p *corev1.Pod) bool { return p == nil })
	if took := time.Since(asked); took < time.Second {
		t.Errorf("it was gone after %s, want 1s", took)
	}
}

func TestContainersHaveLogs(t *testing.T) {
	namespace, client := cluster.Namespace(t), cluster.Client(t)
	pod := newPod(nil)
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, cluster, pods, namespace+"/"+pod.Name, func(p *corev1.Pod) bool { return p != nil && ready(p.Status) })

	line := time.Now().Format(time.RFC3339Nano) + " stdout F written by " + namespace + "\n"
	file, err := os.OpenFile(cluster.Sandbox(t).PodLog, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(line); err != nil {
		t.Fatal(err)
	}
	_ = file.Close()

	stream, err := client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	log, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kwok", "written by " + namespace} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}

// newPod returns a pod that is told by annotations, named without their prefix.
func newPod(told map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Labels: map[string]string{"app": "test"}, Annotations: annotations(told)},
		Spec: corev1.PodSpec{
			RestartPolicy:  corev1.RestartPolicyAlways,
			InitContainers: []corev1.Container{{Name: "init", Image: "example.com/init:1"}},
			Containers:     []corev1.Container{{Name: "main", Image: "example.com/main:1"}},
		},
	}
}

func annotations(told map[string]string) map[string]string {
	prefixed := map[string]string{}
	for key, value := range told {
		prefixed["sandbox.runlevel.dev/"+key] = value
	}
	return prefixed
}

func ready(status corev1.PodStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// waits says whether all containers wait for that reason.
func waits(status corev1.PodStatus, reason string) bool {
	return len(status.ContainerStatuses) > 0 && !slices.ContainsFunc(status.ContainerStatuses,
		func(c corev1.ContainerStatus) bool { return c.State.Waiting == nil || c.State.Waiting.Reason != reason })
}

func awaitEvent(t *testing.T, namespace, reason string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	events, err := cluster.Client(t).CoreV1().Events(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if event := <-events.ResultChan(); event.Type != watch.Added {
		t.Errorf("no event %s for the pod, but %+v", reason, event)
	}
}
