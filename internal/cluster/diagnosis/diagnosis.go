// Package diagnosis asks a cluster what keeps the pods of a workload: the pods, the events
// about them and about what makes them, the nodes, claims and Secrets that they depend on, and
// the last lines of a container that fails. It explains likewise why a webhook or an aggregated API
// does not answer the API server.
//
// What all that means is said by package ready. What can't be asked for is left out, and
// told: callers can do without.
//
// Diagnoser.Explain is the call to start from; Diagnoser.ExplainCall explains a request that failed.
package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// How much is asked about pods: enough for a user to read.
const (
	logLines    = 5
	mostOfAKind = 500 // pods, or events
)

// CanExplain reports whether there may be something to say about an object: it has pods that can be found,
// or the API server calls a Service because of it.
func CanExplain(object *unstructured.Unstructured) bool {
	return podsOf(object) != nil || object != nil && len(kinds.CalledServices(object)) > 0
}

// A Diagnoser asks about any number of objects at about the same time: the nodes of the cluster are
// listed once for all of them.
type Diagnoser struct {
	Cluster *cluster.Cluster

	listNodes sync.Once
	nodes     []corev1.Node
	nodesErr  error

	asking  sync.Mutex
	answers map[string]callAnswer // by their causes
}

// Explain says what keeps an object from being ready, in lines, the most telling first: what keeps its pods,
// or those of the Services that the API server calls for it. The error says what could not be asked
// for; the lines hold all the same.
func (all *Diagnoser) Explain(ctx context.Context, object *unstructured.Unstructured) ([]string, error) {
	if !CanExplain(object) {
		return nil, nil
	}
	a := all.asker(object.GetNamespace())
	selection := podsOf(object)
	if selection == nil {
		lines := a.ofServices(ctx, object)
		return lines, errors.Join(*a.failures...)
	}
	selection.Limit = mostOfAKind
	pods, err := a.client.CoreV1().Pods(a.namespace).List(ctx, *selection)
	if err != nil {
		return nil, a.unasked("list pods", err)
	}
	lines := a.ofPods(ctx, object, pods.Items)
	return lines, errors.Join(*a.failures...)
}

// ofPods says what keeps the pods of an object.
func (a *asker) ofPods(ctx context.Context, object *unstructured.Unstructured, pods []corev1.Pod) []string {
	var lines []string
	on := a.dependencies(ctx, pods)
	for _, trouble := range ready.PodProblems(pods, a.eventsAbout(ctx, object, pods, on.Claims), on) {
		lines = append(lines, trouble.Object+": "+trouble.Message)
		if trouble.WantsLog {
			lines = append(lines, a.lastLines(ctx, trouble)...)
		}
	}
	return lines
}

// An asker asks about pods of one namespace.
type asker struct {
	all       *Diagnoser
	client    kubernetes.Interface
	metadata  metadata.Interface
	namespace string
	failures  *[]error // what could not be asked for
}

func (all *Diagnoser) asker(namespace string) *asker {
	return &asker{all: all, client: all.Cluster.Client, metadata: all.Cluster.Metadata, namespace: namespace, failures: new([]error)}
}

// in returns an asker for another namespace, which notes its failures with this one.
func (a *asker) in(namespace string) *asker {
	other := *a
	other.namespace = namespace
	return &other
}

// note notes that something could not be asked for.
func (a *asker) note(err error) { *a.failures = append(*a.failures, err) }

// Unanswered returns the error of something that could not be asked for, such as "get pods".
func NotAsked(what string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("this user may not %s", what)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// unasked is like Unanswered, about something in the asker's namespace.
func (a *asker) unasked(what string, err error) error {
	return NotAsked(what+" in namespace "+a.namespace, err)
}

// fail notes that something of the whole cluster could not be asked for.
func (a *asker) fail(what string, err error) { a.note(NotAsked(what, err)) }

// podsOf is how to find the pods of an object; nil if it has none.
func podsOf(object *unstructured.Unstructured) *metav1.ListOptions {
	if object == nil {
		return nil
	}
	kind := object.GroupVersionKind().GroupKind()
	if kind.Group == "" && kind.Kind == "Pod" {
		return &metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, object.GetName()).String()}
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

// eventsAbout are the events of a workload, of its pods and their claims, and of its ReplicaSets:
// a quota lets there be no pods, and it is those who say so.
func (a *asker) eventsAbout(ctx context.Context, object *unstructured.Unstructured, pods []corev1.Pod, claims []corev1.PersistentVolumeClaim) []corev1.Event {
	var events []corev1.Event
	for _, selected := range []fields.Selector{
		fields.OneTermEqualSelector("type", corev1.EventTypeWarning),
		fields.OneTermEqualSelector("reason", "SuccessfulCreate"), // after which a failure to create counts no more
	} {
		found, err := a.client.CoreV1().Events(a.namespace).List(ctx, metav1.ListOptions{FieldSelector: selected.String(), Limit: mostOfAKind})
		if err != nil {
			a.note(a.unasked("list events", err))
			break
		}
		events = append(events, found.Items...)
	}
	names := map[string]bool{}
	for i := range pods {
		names[pods[i].Name] = true
	}
	isOfClaim := func(name string) bool {
		return slices.ContainsFunc(claims, func(claim corev1.PersistentVolumeClaim) bool { return claim.Name == name })
	}
	return slices.DeleteFunc(events, func(event corev1.Event) bool {
		about := event.InvolvedObject
		switch about.Kind {
		case "Pod":
			return !names[about.Name]
		case "PersistentVolumeClaim":
			return !isOfClaim(about.Name)
		}
		hash, isMade := strings.CutPrefix(about.Name, object.GetName()+"-")
		return about.Name != object.GetName() && (about.Kind != "ReplicaSet" || !isMade || strings.Contains(hash, "-"))
	})
}

// lastLines are the last lines that a container wrote.
func (a *asker) lastLines(ctx context.Context, trouble ready.PodProblem) []string {
	_, pod, _ := strings.Cut(trouble.Object, "/")
	text, err := a.client.CoreV1().Pods(a.namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: trouble.Container, Previous: trouble.Previous, TailLines: new(int64(logLines)), LimitBytes: new(int64(4096)),
	}).DoRaw(ctx)
	if err != nil {
		if apierrors.IsForbidden(err) { // else there may be none
			a.note(a.unasked("get pods/log", err))
		}
		return nil
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		lines = append(lines, "  | "+printable.Line(strings.TrimRight(line, "\r\n")))
	}
	return lines
}
