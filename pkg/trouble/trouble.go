// Package trouble asks a cluster what keeps the pods of a workload: the pods, the events
// about them and about what makes them, the nodes, claims and Secrets that they depend on, and
// the last lines of a container that fails.
//
// What all that means is said by package ready. What can't be asked for is left out, and
// told: whoever calls it may do without.
//
// Asker.Of is the call to start from.
package trouble

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

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/ready"
)

// How much is asked about pods: enough for somebody to read.
const (
	logLines    = 5
	mostOfAKind = 500 // pods, or events
)

// HasPods says whether an object has pods that can be found.
func HasPods(object *unstructured.Unstructured) bool { return podsOf(object) != nil }

// An Asker asks about any number of objects at about the same time: the nodes of the cluster are
// listed once for all of them.
type Asker struct {
	Cluster *cluster.Cluster

	listNodes sync.Once
	nodes     []corev1.Node
	nodesErr  error
}

// Of says what keeps the pods of an object, in lines, the most telling first; nothing of one
// that has none. The error says what could not be asked for; the lines hold all the same.
func (all *Asker) Of(ctx context.Context, object *unstructured.Unstructured) ([]string, error) {
	selection := podsOf(object)
	if selection == nil {
		return nil, nil
	}
	a := &asker{all: all, client: all.Cluster.Client, metadata: all.Cluster.Metadata, namespace: object.GetNamespace()}
	selection.Limit = mostOfAKind
	pods, err := a.client.CoreV1().Pods(a.namespace).List(ctx, *selection)
	if err != nil {
		return nil, a.unasked("list pods", err)
	}
	var lines []string
	on := a.dependencies(ctx, pods.Items)
	for _, trouble := range ready.Troubles(pods.Items, a.eventsAbout(ctx, object, pods.Items, on.Claims), on) {
		lines = append(lines, trouble.Object+": "+trouble.Message)
		if trouble.WantsLog {
			lines = append(lines, a.lastLines(ctx, trouble)...)
		}
	}
	return lines, errors.Join(a.failures...)
}

// An asker asks about pods of one namespace.
type asker struct {
	all       *Asker
	client    kubernetes.Interface
	metadata  metadata.Interface
	namespace string
	failures  []error
}

// unasked is the error of something that could not be asked for.
func (a *asker) unasked(what string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("this user may not %s in namespace %s", what, a.namespace)
	}
	return fmt.Errorf("%s in namespace %s: %w", what, a.namespace, err)
}

// fail notes that something of the whole cluster could not be asked for.
func (a *asker) fail(what string, err error) {
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("this user may not %s", what)
	} else {
		err = fmt.Errorf("%s: %w", what, err)
	}
	a.failures = append(a.failures, err)
}

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
			a.failures = append(a.failures, a.unasked("list events", err))
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
func (a *asker) lastLines(ctx context.Context, trouble ready.Trouble) []string {
	_, pod, _ := strings.Cut(trouble.Object, "/")
	text, err := a.client.CoreV1().Pods(a.namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: trouble.Container, Previous: trouble.Previous, TailLines: new(int64(logLines)), LimitBytes: new(int64(4096)),
	}).DoRaw(ctx)
	if err != nil {
		if apierrors.IsForbidden(err) { // else there may be none
			a.failures = append(a.failures, a.unasked("get pods/log", err))
		}
		return nil
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		lines = append(lines, "  | "+printable.Line(strings.TrimRight(line, "\r\n")))
	}
	return lines
}
