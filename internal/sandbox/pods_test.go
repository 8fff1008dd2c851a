package sandbox_test

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

func TestPodBehavesAsAnnotated(t *testing.T) {
	tests := map[string]struct {
		annotations map[string]string
		becomes     func(corev1.PodStatus) bool
		event       string
	}{
		"runs without annotations": {
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
		"restarts after each crash": {
			annotations: map[string]string{"pod": "crash", "run-for": "10ms"},
			becomes: func(s corev1.PodStatus) bool {
				return len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].RestartCount >= 2 &&
					s.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode == 1
			},
		},
		"can't pull its image": {
			annotations: map[string]string{"pod": "image-pull"},
			becomes: func(s corev1.PodStatus) bool {
				return waits(s, "ImagePullBackOff") && s.Phase == corev1.PodPending
			},
			event: "Failed",
		},
		"hangs": {
			annotations: map[string]string{"pod": "hang"},
			becomes: func(s corev1.PodStatus) bool {
				return waits(s, "ContainerCreating") && s.Phase == corev1.PodPending
			},
		},
		"starts after a delay": {
			annotations: map[string]string{"start-after": "1s"},
			becomes:     func(s corev1.PodStatus) bool { return s.Phase == corev1.PodRunning && ready(s) },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := cluster.Namespace(t)
			pod := newPod(test.annotations)
			created := time.Now()
			if _, err := cluster.Client(t).CoreV1().Pods(namespace).Create(t.Context(), pod,
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			sandboxtest.Await(t, cluster, pods, namespace+"/"+pod.Name, func(p *corev1.Pod) bool {
				return p != nil && test.becomes(p.Status)
			})
			if delay := test.annotations["start-after"]; delay != "" && time.Since(created) < time.Second {
				t.Errorf("the pod started after %s, want at least %s", time.Since(created), delay)
			}
			if test.event != "" {
				awaitEvent(t, namespace, test.event)
			}
		})
	}
}

func TestPodEndsAsItsVariablesConfigure(t *testing.T) {
	tests := map[string]struct {
		restart     corev1.RestartPolicy
		variables   [][2]string
		annotations map[string]string
		want        string
	}{
		"without variables": {want: "Succeeded Completed 0"},
		"with an exit code": {
			variables: [][2]string{{"SANDBOX_EXIT_CODE", "3"}},
			want:      "Failed Error 3",
		},
		"with exit code 0": {variables: [][2]string{{"SANDBOX_EXIT_CODE", "0"}}, want: "Succeeded Completed 0"},
		"with an exit code twice": {
			variables: [][2]string{{"SANDBOX_EXIT_CODE", "1"}, {"SANDBOX_EXIT_CODE", "4"}},
			want:      "Failed Error 4",
		},
		"with an annotation, which wins": {
			variables:   [][2]string{{"SANDBOX_EXIT_CODE", "1"}},
			annotations: map[string]string{"exit-code": "5"},
			want:        "Failed Error 5",
		},
		"with an invalid exit code": {
			variables: [][2]string{{"SANDBOX_EXIT_CODE", "one"}},
			want:      "Failed Error 255",
		},
		"SANDBOX_POD": {variables: [][2]string{{"SANDBOX_POD", "fail"}}, want: "Failed Error 1"},
		"SANDBOX_POD, with an exit code": {
			variables: [][2]string{{"SANDBOX_POD", "fail"}, {"SANDBOX_EXIT_CODE", "6"}},
			want:      "Failed Error 6",
		},
		"an image that can't be pulled": {
			variables: [][2]string{{"SANDBOX_POD", "image-pull"}, {"SANDBOX_EXIT_CODE", "1"}},
			want:      "Pending ImagePullBackOff",
		},
		"exit code 0 and restart policy OnFailure": {
			restart:   corev1.RestartPolicyOnFailure,
			variables: [][2]string{{"SANDBOX_EXIT_CODE", "0"}},
			want:      "Succeeded Completed 0",
		},
		"exit code 7 and restart policy OnFailure": {
			restart:   corev1.RestartPolicyOnFailure,
			variables: [][2]string{{"SANDBOX_EXIT_CODE", "7"}},
			want:      "Running CrashLoopBackOff Error 7",
		},
		"exit code 0 and restart policy Always": {
			restart:   corev1.RestartPolicyAlways,
			variables: [][2]string{{"SANDBOX_EXIT_CODE", "0"}},
			want:      "Running CrashLoopBackOff Completed 0",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := cluster.Namespace(t)
			pod := newPod(test.annotations)
			pod.Spec.RestartPolicy = cmp.Or(test.restart, corev1.RestartPolicyNever)
			for _, variable := range test.variables {
				pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env,
					corev1.EnvVar{Name: variable[0], Value: variable[1]})
			}
			if _, err := cluster.Client(t).CoreV1().Pods(namespace).Create(t.Context(), pod,
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			sandboxtest.Await(t, cluster, pods, namespace+"/"+pod.Name, func(p *corev1.Pod) bool {
				return p != nil && ending(p.Status) == test.want
			})
		})
	}
}

// ending returns the phase of a pod, with the reasons and exit codes of its containers.
func ending(status corev1.PodStatus) string {
	words := []string{string(status.Phase)}
	for _, c := range status.ContainerStatuses {
		if c.State.Waiting != nil {
			words = append(words, c.State.Waiting.Reason)
		}
		for _, end := range []*corev1.ContainerStateTerminated{c.LastTerminationState.Terminated, c.State.Terminated} {
			if end != nil && !end.StartedAt.IsZero() && !end.FinishedAt.IsZero() {
				words = append(words, end.Reason, strconv.Itoa(int(end.ExitCode)))
			}
		}
	}
	return strings.Join(words, " ")
}

func TestPodFailsAtItsDeadline(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		variable, value string
		seconds         int64
		want            string
	}{
		"runs":               {"SANDBOX_POD", "run", 1, "DeadlineExceeded Failed Error 137"},
		"runs for too long":  {"SANDBOX_RUN_FOR", "1h0m0.5s", 1, "DeadlineExceeded Failed Error 137"},
		"starts too late":    {"SANDBOX_START_AFTER", "1h", 1, "DeadlineExceeded Failed ContainerCreating"},
		"waits for an image": {"SANDBOX_POD", "image-pull", 1, "DeadlineExceeded Failed ImagePullBackOff"},
		"ends in time":       {"SANDBOX_RUN_FOR", "10ms", 3600, " Succeeded Completed 0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := cluster.Namespace(t)
			pod := newPod(nil)
			pod.Spec.RestartPolicy, pod.Spec.ActiveDeadlineSeconds = corev1.RestartPolicyNever, &test.seconds
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: test.variable, Value: test.value}}
			if _, err := cluster.Client(t).CoreV1().Pods(namespace).Create(t.Context(), pod,
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			sandboxtest.Await(t, cluster, pods, namespace+"/"+pod.Name, func(p *corev1.Pod) bool {
				return p != nil && p.Status.Reason+" "+ending(p.Status) == test.want
			})
		})
	}
}

func TestEndPodEndsARunningPod(t *testing.T) {
	t.Parallel()
	for name, variables := range map[string][]corev1.EnvVar{
		"SANDBOX_POD":     {{Name: "SANDBOX_POD", Value: "run"}},
		"SANDBOX_RUN_FOR": {{Name: "SANDBOX_RUN_FOR", Value: "1h"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := cluster.Namespace(t)
			pod := newPod(nil)
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			pod.Spec.Containers[0].Env = variables
			if _, err := cluster.Client(t).CoreV1().Pods(namespace).Create(t.Context(), pod,
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			sandboxtest.Await(t, cluster, pods, namespace+"/"+pod.Name, func(p *corev1.Pod) bool {
				return p != nil && ready(p.Status)
			})
			cluster.EndPod(t, namespace, pod.Name, 1)
			sandboxtest.Await(t, cluster, pods, namespace+"/"+pod.Name, func(p *corev1.Pod) bool {
				return p != nil && ending(p.Status) == "Failed Error 1"
			})
		})
	}
}

func TestDeletedPodStopsAfterADelay(t *testing.T) {
	t.Parallel()
	namespace, client := cluster.Namespace(t), cluster.Client(t)
	pod := newPod(map[string]string{"stop-after": "1s"})
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, cluster, pods, namespace+"/"+pod.Name, func(p *corev1.Pod) bool {
		return p != nil && ready(p.Status)
	})
	deleted := time.Now()
	if err := client.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Await(t, cluster, pods, namespace+"/"+pod.Name, func(p *corev1.Pod) bool { return p == nil })
	if took := time.Since(deleted); took < time.Second {
		t.Errorf("the pod was removed after %s, want at least 1s", took)
	}
}

// newPod returns a pod with annotations, which are named without their prefix.
func newPod(settings map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "pod",
			Labels:      map[string]string{"app": "test"},
			Annotations: annotations(settings),
		},
		Spec: corev1.PodSpec{
			RestartPolicy:  corev1.RestartPolicyAlways,
			InitContainers: []corev1.Container{{Name: "init", Image: "example.com/init:1"}},
			Containers:     []corev1.Container{{Name: "main", Image: "example.com/main:1"}},
		},
	}
}

func annotations(settings map[string]string) map[string]string {
	prefixed := map[string]string{}
	for key, value := range settings {
		prefixed["sandbox.runlevel.dev/"+key] = value
	}
	return prefixed
}

func ready(status corev1.PodStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// waits reports whether all containers wait for that reason.
func waits(status corev1.PodStatus, reason string) bool {
	return len(status.ContainerStatuses) > 0 && !slices.ContainsFunc(status.ContainerStatuses,
		func(c corev1.ContainerStatus) bool { return c.State.Waiting == nil || c.State.Waiting.Reason != reason })
}

func awaitEvent(t *testing.T, namespace, reason string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	events, err := cluster.Client(t).CoreV1().Events(namespace).Watch(ctx,
		metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if event := <-events.ResultChan(); event.Type != watch.Added {
		t.Errorf("got %+v, want an event %s of the pod", event, reason)
	}
}
