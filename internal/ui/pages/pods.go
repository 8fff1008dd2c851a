package pages

import (
	"context"
	"fmt"
	"slices"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// Limits of the reads about the pods of an object, and of the shown part.
const (
	maxListed   = 500 // pods
	maxLogLines = 40
	maxLogBytes = 64 << 10
)

// log returns the last lines of the log of a container that fails; nil if none fails.
func (v *objectView) log() g.Group {
	pods, err := v.pods()
	if err != nil {
		return notKnown(err)
	}
	problem := failingContainer(pods)
	if problem == nil {
		return nil
	}
	_, pod, _ := strings.Cut(problem.Object, "/")
	if err := v.mayReadLogs(v.ctx, v.id.Namespace); err != nil {
		return notKnown(err)
	}
	text, err := v.Hub.Cluster.Client.CoreV1().Pods(v.id.Namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: problem.Container, Previous: problem.Previous,
		TailLines: new(int64(maxLogLines)), LimitBytes: new(int64(maxLogBytes)),
	}).DoRaw(v.ctx)
	if err != nil {
		return notKnown(diagnosis.ReadError("get pods/log of pod "+pod+" in namespace "+v.id.Namespace, err))
	}
	title := fmt.Sprintf("Container %s of pod %s", problem.Container, pod)
	if problem.Previous {
		title += ", before it was restarted"
	}
	return g.Group{
		h.P(look.Text(problem.Message)), h.H3(look.Text(title)), block(title, string(text), maxLogLines),
	}
}

// failingContainer returns the problem of the container whose log is shown; nil if none fails. A container that crashes
// again and again runs in between, and the log of its last run matters then, too.
func failingContainer(pods []corev1.Pod) *ready.PodProblem {
	for _, problem := range ready.PodProblems(pods, nil, ready.Dependencies{}) {
		if problem.WantsLog {
			return &problem
		}
	}
	for i := range pods {
		for _, status := range slices.Concat(pods[i].Status.InitContainerStatuses, pods[i].Status.ContainerStatuses) {
			last := status.LastTerminationState.Terminated
			if !status.Ready && status.State.Terminated == nil && last != nil && last.ExitCode != 0 {
				return &ready.PodProblem{
					Object: "Pod " + pods[i].Namespace + "/" + pods[i].Name, Container: status.Name, Previous: true,
					Message: fmt.Sprintf("container %s was restarted after exit code %d", status.Name, last.ExitCode),
				}
			}
		}
	}
	return nil
}

// mayList returns an error unless the user may list a core resource in a namespace; in all if it is empty.
func (s *Site) mayList(ctx context.Context, resource, namespace string) error {
	return s.may(ctx, authorizationv1.ResourceAttributes{Verb: "list", Namespace: namespace, Resource: resource})
}

// mayReadLogs returns an error unless the user may read the logs of pods; in all namespaces if it is empty.
func (s *Site) mayReadLogs(ctx context.Context, namespace string) error {
	return s.may(ctx, authorizationv1.ResourceAttributes{
		Verb: "get", Namespace: namespace, Resource: "pods", Subresource: "log",
	})
}

// withoutLogs returns answers without the lines of logs in their details, unless the user may read them.
func (s *Site) withoutLogs(ctx context.Context, namespace string, answers []*why.Answer) []*why.Answer {
	if s.mayReadLogs(ctx, namespace) == nil {
		return answers
	}
	var shown []*why.Answer
	for _, answer := range answers {
		shown = append(shown, withoutLog(answer))
	}
	return shown
}

// withoutLog returns an answer without the lines of logs in its details.
func withoutLog(answer *why.Answer) *why.Answer {
	shown := *answer
	shown.Messages = slices.Clone(answer.Messages)
	for i, message := range shown.Messages {
		shown.Messages[i].Details = slices.DeleteFunc(slices.Clone(message.Details), diagnosis.IsLogLine)
	}
	return &shown
}

// readPods lists the pods of the object; nil if it can't have pods.
func (v *objectView) readPods() ([]corev1.Pod, error) {
	selection := diagnosis.PodsOf(v.live)
	if selection == nil {
		return nil, nil
	}
	if err := v.mayList(v.ctx, "pods", v.id.Namespace); err != nil {
		return nil, err
	}
	selection.Limit = maxListed
	listed, err := v.Hub.Cluster.Client.CoreV1().Pods(v.id.Namespace).List(v.ctx, *selection)
	if err != nil {
		return nil, diagnosis.ReadError("list pods in namespace "+v.id.Namespace, err)
	}
	return listed.Items, nil
}
