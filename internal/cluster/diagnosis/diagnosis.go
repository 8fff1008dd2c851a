// Package diagnosis reads why the pods of a workload are not ready: the pods, the events
// about them and their controllers, the nodes, claims and Secrets that they depend on, and
// the last lines of a container that fails. It also explains why a webhook or an aggregated API
// does not answer the API server.
//
// Package ready interprets these objects. Objects that can't be read are left out, and the
// errors are returned with the lines.
//
// Diagnoser.ExplainCall explains a request that failed. Start with Diagnoser.Explain.
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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// How much is read about pods: enough for a user to read.
const (
	logLines   = 5
	maxOfAKind = 500 // pods, or events
)

// CanExplain reports whether Explain may find something about an object: its pods can be found,
// or it configures a Service that the API server calls.
func CanExplain(object *unstructured.Unstructured) bool {
	return PodsOf(object) != nil || object != nil && len(kinds.CalledServices(object)) > 0
}

// A Diagnoser explains any number of objects at about the same time: the nodes of the cluster are listed once for all
// objects.
type Diagnoser struct {
	Cluster *cluster.Cluster

	listNodes sync.Once
	nodes     []corev1.Node
	nodesErr  error

	mu           sync.Mutex
	explanations map[string]callExplanation // keyed by cause
}

// Explain returns in lines why an object is not ready, the most likely cause first: the problems of its pods,
// or of the pods of the Services that the API server calls for it. The error is about objects that could not be
// read; the lines are valid nevertheless.
func (d *Diagnoser) Explain(ctx context.Context, object *unstructured.Unstructured) ([]string, error) {
	if !CanExplain(object) {
		return nil, nil
	}
	e := d.explainer(object.GetNamespace())
	selection := PodsOf(object)
	if selection == nil {
		lines := e.ofServices(ctx, object)
		return lines, errors.Join(*e.failures...)
	}
	selection.Limit = maxOfAKind
	pods, err := e.Client.CoreV1().Pods(e.namespace).List(ctx, *selection)
	if err != nil {
		return nil, e.readError("list pods", err)
	}
	lines := e.ofPods(ctx, object, pods.Items)
	return lines, errors.Join(*e.failures...)
}

// ofPods returns the problems of the pods of an object.
func (e *explainer) ofPods(ctx context.Context, object *unstructured.Unstructured, pods []corev1.Pod) []string {
	var lines []string
	on := e.dependencies(ctx, pods)
	for _, trouble := range ready.PodProblems(pods, e.eventsAbout(ctx, object, pods, on.Claims), on) {
		lines = append(lines, trouble.Object+": "+trouble.Message)
		if trouble.WantsLog {
			lines = append(lines, e.lastLines(ctx, trouble)...)
		}
	}
	return lines
}

// An explainer explains pods of one namespace.
type explainer struct {
	diagnoser *Diagnoser
	*cluster.Cluster
	namespace string
	failures  *[]error // errors of reads
}

func (d *Diagnoser) explainer(namespace string) *explainer {
	return &explainer{d, d.Cluster, namespace, new([]error)}
}

// in returns an explainer for another namespace, which adds its failures to those of this one.
func (e *explainer) in(namespace string) *explainer {
	other := *e
	other.namespace = namespace
	return &other
}

// note adds a failure.
func (e *explainer) note(err error) { *e.failures = append(*e.failures, err) }

// ReadError returns the error of a read that failed, such as "get pods".
func ReadError(action string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("this user may not %s", action)
	}
	return fmt.Errorf("%s: %w", action, err)
}

// readError is like ReadError, for a read in the explainer's namespace.
func (e *explainer) readError(action string, err error) error {
	return ReadError(action+" in namespace "+e.namespace, err)
}

// fail adds the failure of a read of cluster-scoped objects.
func (e *explainer) fail(action string, err error) { e.note(ReadError(action, err)) }

// PodsOf returns the options that list the pods of an object; nil if it has none.
func PodsOf(object *unstructured.Unstructured) *metav1.ListOptions {
	if object == nil {
		return nil
	}
	kind := object.GroupVersionKind().GroupKind()
	if kind.Group == "" && kind.Kind == "Pod" {
		return &metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, object.GetName()).String(),
		}
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

// eventsAbout returns the events of a workload, of its pods and their claims, and of its ReplicaSets:
// a ReplicaSet has the event if a quota forbids its pods.
func (e *explainer) eventsAbout(ctx context.Context, object *unstructured.Unstructured, pods []corev1.Pod,
	claims []corev1.PersistentVolumeClaim) []corev1.Event {
	var events []corev1.Event
	for _, selected := range []fields.Selector{
		fields.OneTermEqualSelector("type", corev1.EventTypeWarning),
		fields.OneTermEqualSelector("reason", "SuccessfulCreate"), // ends earlier failures to create
	} {
		found, err := e.Client.CoreV1().Events(e.namespace).List(ctx,
			metav1.ListOptions{FieldSelector: selected.String(), Limit: maxOfAKind})
		if err != nil {
			e.note(e.readError("list events", err))
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

// logMark begins the lines of logs.
const logMark = "  | "

// IsLogLine reports whether a line of an explanation is from the log of a container.
func IsLogLine(line string) bool { return strings.HasPrefix(line, logMark) }

// lastLines returns the last lines of a container's log.
func (e *explainer) lastLines(ctx context.Context, trouble ready.PodProblem) []string {
	_, pod, _ := strings.Cut(trouble.Object, "/")
	text, err := e.Client.CoreV1().Pods(e.namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: trouble.Container, Previous: trouble.Previous, TailLines: new(int64(logLines)),
		LimitBytes: new(int64(4096)),
	}).DoRaw(ctx)
	if err != nil {
		if apierrors.IsForbidden(err) { // other errors may mean that no log exists
			e.note(e.readError("get pods/log", err))
		}
		return nil
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		lines = append(lines, logMark+printable.Line(strings.TrimRight(line, "\r\n")))
	}
	return lines
}

// A Message is a sentence with its details.
type Message struct {
	Text    string   `json:"text"`
	Details []string `json:"details,omitempty"`
}

// An Explanation reports what an object waits for, and what an administrator can do about it.
type Explanation struct {
	Messages      []Message // the most important first
	Unknown       []string  // failed reads
	IsDone        bool      // the object waits for nothing
	IsTerminating bool
}

// An Explainer explains the objects of kinds that have controllers of their own, such as machines.
type Explainer struct {
	Kinds []schema.GroupKind
	// Subject completes the message about a failed read, for example "what holds the machine".
	Subject string
	// Explain returns nil if the object does not exist, and an error that wraps cluster.ErrNotServed if the cluster
	// does not serve its kind.
	Explain func(context.Context, *cluster.Cluster, kinds.ID) (*Explanation, error)
}

// Explains reports whether the explainer explains the objects of a kind.
func (e Explainer) Explains(kind schema.GroupKind) bool { return slices.Contains(e.Kinds, kind) }

// Add adds a message, unless its text is empty.
func (e *Explanation) Add(text string, details ...string) {
	if text != "" {
		e.Messages = append(e.Messages, Message{Text: text, Details: details})
	}
}
