package sandbox_test

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

func TestLogOptions(t *testing.T) {
	t.Parallel()
	namespace := cluster.Namespace(t)
	createPod(t, namespace, "silent", corev1.EnvVar{Name: "SANDBOX_POD", Value: "run"})
	createPod(t, namespace, "migrate", corev1.EnvVar{Name: "SANDBOX_LOG", Value: "not this"},
		corev1.EnvVar{Name: "SANDBOX_LOG", Value: "table a\ntable b\ntable c\n"})
	awaitEnding(t, namespace, "silent", "Running")
	ended := awaitEnding(t, namespace, "migrate", "Succeeded Completed 0")

	start := ended.Status.ContainerStatuses[0].State.Terminated.StartedAt.UTC()
	later := metav1.NewTime(start.Add(time.Second))
	tests := map[string]struct {
		pod     string
		options corev1.PodLogOptions
		want    string
	}{
		"a pod without a log": {pod: "silent", want: "simulated by kwok\n"},
		"the whole log":       {pod: "migrate", want: "table a\ntable b\ntable c\n"},
		"tailLines": {
			pod:     "migrate",
			options: corev1.PodLogOptions{TailLines: new(int64(2))},
			want:    "table b\ntable c\n",
		},
		"limitBytes": {pod: "migrate", options: corev1.PodLogOptions{LimitBytes: new(int64(9))}, want: "table a\nt"},
		"sinceTime":  {pod: "migrate", options: corev1.PodLogOptions{SinceTime: &later}, want: ""},
		"timestamps": {pod: "migrate", options: corev1.PodLogOptions{TailLines: new(int64(1)), Timestamps: true},
			want: start.Format("2006-01-02T15:04:05") + ".002000000Z table c\n"},
		"follow after the end": {
			pod:     "migrate",
			options: corev1.PodLogOptions{Follow: true},
			want:    "table a\ntable b\ntable c\n",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			log, err := cluster.Client(t).CoreV1().Pods(namespace).GetLogs(test.pod, &test.options).DoRaw(t.Context())
			if err != nil || string(log) != test.want {
				t.Errorf("the log is %q, %v; want %q", log, err, test.want)
			}
		})
	}
}

func TestLogIsFollowedUntilThePodEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(namespace string){
		"by itself": func(namespace string) { cluster.EndPod(t, namespace, "migrate", 1) },
		"deleted": func(namespace string) {
			if err := cluster.Client(t).CoreV1().Pods(namespace).Delete(t.Context(), "migrate",
				metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := cluster.Namespace(t)
			createPod(t, namespace, "migrate", corev1.EnvVar{Name: "SANDBOX_POD", Value: "run"},
				corev1.EnvVar{Name: "SANDBOX_LOG", Value: "table a"})
			awaitEnding(t, namespace, "migrate", "Running")
			stream, err := cluster.Client(t).CoreV1().Pods(namespace).GetLogs("migrate",
				&corev1.PodLogOptions{Follow: true}).Stream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			log := bufio.NewReader(stream)
			awaitLine(t, log, "table a\n")
			cluster.LogPod(t, namespace, "migrate", "table a\ntable b\n")
			awaitLine(t, log, "table b\n")
			end(namespace)
			if rest, err := io.ReadAll(log); err != nil || len(rest) > 0 {
				t.Errorf("after the end, the log has %q, %v; want nothing", rest, err)
			}
		})
	}
}

func TestLogOfAMissingRun(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ behaviour, ending, want string }{
		"the image is missing": {"image-pull", "Pending ImagePullBackOff",
			`container "main" in pod "web" is waiting to start: trying and failing to pull image`},
		"the container is being created": {"hang", "Pending ContainerCreating",
			`container "main" in pod "web" is waiting to start: ContainerCreating`},
		"the first run": {"run", "Running", `previous terminated container "main" in pod "web" not found`},
		"after a crash": {"crash", "Running CrashLoopBackOff Error 1", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := cluster.Namespace(t)
			createPod(t, namespace, "web", corev1.EnvVar{Name: "SANDBOX_POD", Value: test.behaviour})
			awaitEnding(t, namespace, "web", test.ending)
			hasRun := test.behaviour == "run" || test.behaviour == "crash"
			log, err := cluster.Client(t).CoreV1().Pods(namespace).GetLogs("web",
				&corev1.PodLogOptions{Previous: hasRun}).Stream(t.Context())
			if test.want == "" && err == nil {
				defer log.Close()
				awaitLine(t, bufio.NewReader(log), "simulated by kwok\n")
			} else if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a bad request: %s", err, test.want)
			}
		})
	}
}

// createPod creates a pod with restart policy Never and variables.
func createPod(t *testing.T, namespace, name string, variables ...corev1.EnvVar) {
	t.Helper()
	pod := newPod(nil)
	pod.Name = name
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers[0].Env = variables
	if _, err := cluster.Client(t).CoreV1().Pods(namespace).Create(t.Context(), pod,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitEnding waits until the function ending returns a text for a pod.
func awaitEnding(t *testing.T, namespace, name, want string) *corev1.Pod {
	t.Helper()
	return sandboxtest.Await(t, cluster, pods, namespace+"/"+name, func(p *corev1.Pod) bool {
		return p != nil && ending(p.Status) == want
	})
}

func awaitLine(t *testing.T, log *bufio.Reader, want string) {
	t.Helper()
	if line, err := log.ReadString('\n'); err != nil || line != want {
		t.Fatalf("the next line of the log is %q, %v; want %q", line, err, want)
	}
}
