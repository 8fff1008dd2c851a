package releasetest

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster/podlogs"
)

// lastLines limits the lines that are read from the log of a test that has not passed.
const lastLines = 20

// describe adds to a result the exit codes and logs of the test's last pod, or else why it has not run.
func (r *runner) describe(ctx context.Context, test *liveTest, result *Result) {
	if result.State == Passed && r.options.Logs != AllLogs {
		return
	}
	pods, err := r.pods(ctx, test)
	if err != nil {
		result.Why = append(result.Why, err.Error())
	}
	if len(pods) > 0 {
		last := slices.MaxFunc(pods, func(a, b corev1.Pod) int {
			return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		})
		result.Containers = r.containers(ctx, &last)
	}
	hasFailed := slices.ContainsFunc(result.Containers, func(c Container) bool {
		return c.ExitCode != nil && *c.ExitCode != 0
	})
	if result.State == Passed || hasFailed {
		return
	}
	problems, err := r.explain(ctx, test)
	if err != nil {
		problems = append(problems, err.Error())
	}
	result.Why = append(result.Why, problems...)
}

// explain returns the problems of the pods of a test, without their logs.
func (r *runner) explain(ctx context.Context, test *liveTest) ([]string, error) {
	lines, err := test.diagnoser.Explain(ctx, test.object)
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, " ") }), err
}

// pods returns the pods of a test: those of the Job, or the Pod itself.
func (r *runner) pods(ctx context.Context, test *liveTest) ([]corev1.Pod, error) {
	pods := r.cluster.Client.CoreV1().Pods(test.object.GetNamespace())
	if test.object.GetKind() == "Pod" {
		pod, err := pods.Get(ctx, test.object.GetName(), metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return []corev1.Pod{*pod}, nil
	}
	list, err := pods.List(ctx,
		metav1.ListOptions{LabelSelector: "batch.kubernetes.io/controller-uid=" + string(test.object.GetUID())})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// containers returns the containers of a pod that have started, with their logs as the options have it.
func (r *runner) containers(ctx context.Context, pod *corev1.Pod) []Container {
	var found []Container
	for i, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		ended := status.State.Terminated
		if ended == nil {
			ended = status.LastTerminationState.Terminated
		}
		isInit := i < len(pod.Status.InitContainerStatuses)
		if ended == nil && status.State.Running == nil || isInit && ended != nil && ended.ExitCode == 0 {
			continue
		}
		c := Container{Pod: pod.Name, Name: status.Name}
		if ended != nil {
			c.ExitCode = &ended.ExitCode
		}
		most := int64(lastLines)
		if r.options.Logs == AllLogs {
			most = 0
		}
		if r.options.Logs != NoLogs {
			c.Log, _ = podlogs.LastLines(ctx, r.cluster.Client, pod, status.Name, most) // there may be no log any more
		}
		found = append(found, c)
	}
	return found
}
