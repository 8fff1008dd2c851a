package pages

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// Limits of the reads about the pods of an object, and of the shown part.
const (
	maxListed   = 500 // pods, or events
	maxEvents   = 20
	maxLogLines = 40
	maxLogBytes = 64 << 10
)

// log returns the last lines of the log of a container that fails; nil if the object has no pods.
func (v *objectView) log() g.Group {
	pods, err := v.pods()
	if err != nil {
		return sentence(err.Error())
	}
	if pods == nil {
		return nil
	}
	problem := failingContainer(pods)
	if problem == nil {
		return sentence("No container of its pods fails.")
	}
	_, pod, _ := strings.Cut(problem.Object, "/")
	if err := v.mayReadLogs(v.ctx, v.id.Namespace); err != nil {
		return sentence(err.Error())
	}
	text, err := v.Hub.Cluster.Client.CoreV1().Pods(v.id.Namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: problem.Container, Previous: problem.Previous,
		TailLines: new(int64(maxLogLines)), LimitBytes: new(int64(maxLogBytes)),
	}).DoRaw(v.ctx)
	if err != nil {
		return sentence(diagnosis.ReadError("get pods/log of pod "+pod+" in namespace "+v.id.Namespace, err).Error())
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
	right := authorizationv1.ResourceAttributes{Verb: "list", Namespace: v.id.Namespace, Resource: "pods"}
	if err := v.may(v.ctx, right); err != nil {
		return nil, err
	}
	selection.Limit = maxListed
	listed, err := v.Hub.Cluster.Client.CoreV1().Pods(v.id.Namespace).List(v.ctx, *selection)
	if err != nil {
		return nil, diagnosis.ReadError("list pods in namespace "+v.id.Namespace, err)
	}
	return listed.Items, nil
}

// events returns the newest events about the object and its pods.
func (v *objectView) events() g.Group {
	found, err := v.eventsAbout(fields.Set{"involvedObject.kind": v.id.Kind, "involvedObject.name": v.id.Name})
	if err != nil {
		return sentence(err.Error())
	}
	if pods, err := v.pods(); err == nil && len(pods) > 0 && v.id.Kind != "Pod" {
		names := map[string]bool{}
		for i := range pods {
			names[pods[i].Name] = true
		}
		ofPods, err := v.eventsAbout(fields.Set{"involvedObject.kind": "Pod"})
		if err != nil {
			return sentence(err.Error())
		}
		found = append(found, slices.DeleteFunc(ofPods, func(e corev1.Event) bool {
			return !names[e.InvolvedObject.Name]
		})...)
	}
	slices.SortStableFunc(found, func(a, b corev1.Event) int { return eventTime(&b).Compare(eventTime(&a)) })
	table := look.Table{Caption: "Events", Columns: []string{"Age", "Object", "Reason", "Message"}}
	for i := range found[:min(maxEvents, len(found))] {
		event := &found[i]
		reason := look.Text(event.Reason)
		if event.Type == corev1.EventTypeWarning {
			reason = look.State(look.Bad, event.Reason)
		}
		message := event.Message
		if event.Count > 1 {
			message += fmt.Sprintf(" (%d times)", event.Count)
		}
		table.Rows = append(table.Rows, []g.Node{
			look.Age(v.now(), eventTime(event)),
			look.Text(event.InvolvedObject.Kind + " " + event.InvolvedObject.Name), reason, look.Text(message),
		})
	}
	if len(found) == 0 {
		return sentence("There are no events. Clusters delete events after a while, by default after an hour.")
	}
	nodes := g.Group{table.Node()}
	if more := len(found) - maxEvents; more > 0 {
		nodes = append(nodes, h.P(g.Textf("and %d older ones", more)))
	}
	return nodes
}

// eventsAbout lists the events with some fields in the namespace of the object. Events about cluster-scoped objects are
// in the default namespace.
func (v *objectView) eventsAbout(selected fields.Set) ([]corev1.Event, error) {
	return v.eventsIn(v.ctx, cmp.Or(v.id.Namespace, metav1.NamespaceDefault), selected)
}

// eventsIn returns the selected events of a namespace.
func (s *Site) eventsIn(ctx context.Context, namespace string, selected fields.Set) ([]corev1.Event, error) {
	right := authorizationv1.ResourceAttributes{Verb: "list", Namespace: namespace, Resource: "events"}
	if err := s.may(ctx, right); err != nil {
		return nil, err
	}
	listed, err := s.Hub.Cluster.Client.CoreV1().Events(namespace).List(ctx,
		metav1.ListOptions{FieldSelector: selected.AsSelector().String(), Limit: maxListed})
	if err != nil {
		return nil, diagnosis.ReadError("list events in namespace "+namespace, err)
	}
	return listed.Items, nil
}

// eventTime returns when an event was last observed: there are two APIs of events.
func eventTime(event *corev1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	default:
		return event.CreationTimestamp.Time
	}
}
