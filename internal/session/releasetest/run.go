package releasetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
	"github.com/runlevel/runlevel/internal/cluster/waiter"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A runner runs the tests of a release.
type runner struct {
	cluster *cluster.Cluster
	release string
	options Options
}

// A liveTest is a test on the cluster.
type liveTest struct {
	in        cluster.Resource
	object    *unstructured.Unstructured // the last observed state
	diagnoser *diagnosis.Diagnoser
	// containers are those of a Pod's manifest: webhooks may have added others.
	containers []string
}

// run runs a test, and deletes it unless it is kept.
func (r *runner) run(ctx context.Context, m *payload.Manifest) Result {
	began, result := time.Now(), Result{Object: m.ID(), File: m.Path, State: Running}
	r.options.OnEvent(Event{Result: result})
	limited, cancel := context.WithTimeoutCause(ctx, r.options.Timeout, errTimeout)
	defer cancel()
	test, err := r.create(limited, m)
	if err == nil {
		err = r.await(limited, test, result)
	}
	switch {
	case err == nil:
		result.State, result.Message = test.endOf(test.object)
	case ctx.Err() != nil:
		result.State, result.Message = Interrupted, "interrupted"
	case limited.Err() != nil && test != nil:
		result.State, result.Message = TimedOut, fmt.Sprintf("not done after %s", r.options.Timeout)
	case limited.Err() != nil:
		result.State, result.Message = TimedOut,
			printable.Line(fmt.Sprintf("not started after %s: %s", r.options.Timeout, err))
	default:
		result.State, result.Message = Failed, printable.Line(err.Error())
	}
	if test != nil && ctx.Err() == nil {
		r.describe(ctx, test, &result)
		r.clear(ctx, test, m, &result)
	} else {
		result.IsLeft = test != nil
	}
	result.Seconds = seconds(began)
	r.options.OnEvent(Event{Result: result})
	return result
}

// create deletes the object of an earlier run of a test, and creates the test.
func (r *runner) create(ctx context.Context, m *payload.Manifest) (*liveTest, error) {
	id := m.ID()
	resource, err := r.cluster.FindKind(ctx, id.GroupKind())
	if err != nil {
		return nil, err
	}
	if id.Namespace == "" {
		return nil, errors.New("no namespace: add one to its manifest")
	}
	if err := r.deleteEarlier(ctx, resource, m); err != nil {
		return nil, err
	}
	object := m.Object().DeepCopy()
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[objectmeta.TestLabel] = r.release
	object.SetLabels(labels)
	// If an interruption ended the request, the test might exist without being reported.
	requests, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	created, err := r.cluster.Create(requests, resource, object, 0)
	if err != nil {
		return nil, fmt.Errorf("could not be created: %w", err)
	}
	return &liveTest{resource, created.Object, &diagnosis.Diagnoser{Cluster: r.cluster}, containersOf(object)}, nil
}

// requestTimeout bounds a request that an interruption does not end.
const requestTimeout = 20 * time.Second

// deleteEarlier deletes the object of an earlier run of a test, or the object that the release had applied before it
// became a test, and waits until the object is deleted. It returns an error for an object that the release does not
// own.
func (r *runner) deleteEarlier(ctx context.Context, resource cluster.Resource, m *payload.Manifest) error {
	id := m.ID()
	found, err := r.cluster.GetMetadata(ctx, resource, id.Namespace, id.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	head := objectmeta.Of(resource, found)
	if head.Object().GetLabels()[objectmeta.TestLabel] != r.release && !head.IsOf(r.release) {
		return fmt.Errorf("an object of this name exists that release %s does not own: delete it, or rename the test",
			r.release)
	}
	if err := r.delete(ctx, resource, id.Namespace, id.Name, head.UID); err != nil {
		return fmt.Errorf("delete the object of an earlier run: %w", err)
	}
	isDeleted := func(object *unstructured.Unstructured) bool { return object == nil || object.GetUID() != head.UID }
	if _, err := objectwatch.Await(ctx, r.cluster.In(resource, id.Namespace), id.Name, isDeleted); err != nil {
		return fmt.Errorf("wait until the object of an earlier run is deleted: %w", err)
	}
	return nil
}

// explainEvery is the interval at which the problems of the pods of a running test are reported.
const explainEvery = 5 * time.Second

// rewatchAfter is the pause after a watch that does not show the test: the watch cache of the API server may be behind.
const rewatchAfter = time.Second

// await waits until a test has ended. It reports why the test does not end whenever the explanation has changed.
func (r *runner) await(ctx context.Context, test *liveTest, result Result) error {
	var reported []string
	w := waiter.Waiter{
		Pause:          waiter.Pause{Shortest: rewatchAfter},
		ReportAfter:    explainEvery,
		ReportInterval: explainEvery,
		Report: func(ctx context.Context, _ error) error {
			if lines, _ := r.explain(ctx, test); len(lines) > 0 && !slices.Equal(lines, reported) {
				reported = lines
				r.options.OnEvent(Event{Result: result, Waits: lines})
			}
			return nil
		},
	}
	return w.Until(ctx, func(ctx context.Context) (waiter.Result, error) { return r.watch(ctx, test) })
}

// watch watches a test until it has ended, and for explainEvery at most.
func (r *runner) watch(ctx context.Context, test *liveTest) (waiter.Result, error) {
	namespace, name, uid := test.object.GetNamespace(), test.object.GetName(), test.object.GetUID()
	limited, cancel := context.WithTimeout(ctx, explainEvery)
	defer cancel()
	last, err := objectwatch.Await(limited, r.cluster.In(test.in, namespace), name,
		func(object *unstructured.Unstructured) bool {
			return object == nil || object.GetUID() != uid || test.hasEnded(object)
		})
	switch {
	case last == nil && err != nil: // the API server does not answer
		return waiter.AtOnce, nil
	case last == nil: // the test was deleted, or the watch is older than the test
		if _, err := r.cluster.GetMetadata(ctx, test.in, namespace, name); apierrors.IsNotFound(err) {
			return waiter.Done, errDeleted
		}
		return waiter.Again, nil
	case last.GetUID() != uid:
		return waiter.Done, errDeleted
	}
	test.object = last
	if err != nil { // the test has not ended
		return waiter.AtOnce, nil
	}
	return waiter.Done, nil
}

var errDeleted = errors.New("it was deleted while it ran")

// hasEnded reports whether the test has ended.
func (t *liveTest) hasEnded(object *unstructured.Unstructured) bool {
	state, _ := t.endOf(object)
	return state != Running
}

// endOf returns the state of the test by its object, and why it has failed.
func (t *liveTest) endOf(object *unstructured.Unstructured) (state State, message string) {
	if object.GetKind() == "Pod" {
		return endOfPod(object, t.containers)
	}
	var job batchv1.Job
	if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &job) != nil {
		return Running, ""
	}
	for _, condition := range job.Status.Conditions {
		switch {
		case condition.Status != corev1.ConditionTrue:
		case condition.Type == batchv1.JobComplete:
			return Passed, ""
		case condition.Type == batchv1.JobFailed:
			return Failed, reasonAndMessage(condition.Reason, condition.Message)
		}
	}
	return Running, ""
}

// endOfPod returns how a pod has ended: by its phase, or because the containers of its manifest have ended. The phase
// follows them, or never does: a container that a webhook has added may run for ever.
func endOfPod(object *unstructured.Unstructured, containers []string) (state State, message string) {
	var pod corev1.Pod
	if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &pod) != nil {
		return Running, ""
	}
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		return Passed, ""
	case corev1.PodFailed:
		return Failed, reasonAndMessage(pod.Status.Reason, pod.Status.Message)
	}
	ended, failed := 0, false
	for _, status := range pod.Status.ContainerStatuses {
		end := status.State.Terminated
		if end == nil || !slices.Contains(containers, status.Name) {
			continue
		}
		ended++
		failed = failed || end.ExitCode != 0
	}
	switch {
	// the kubelet restarts it
	case ended < len(containers), failed && pod.Spec.RestartPolicy != corev1.RestartPolicyNever:
		return Running, ""
	case failed:
		return Failed, ""
	}
	return Passed, ""
}

// containersOf returns the names of the containers of a Pod; none for another object.
func containersOf(object *unstructured.Unstructured) []string {
	var pod corev1.Pod
	if object.GetKind() != "Pod" || runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &pod) != nil {
		return nil
	}
	var names []string
	for _, container := range pod.Spec.Containers {
		names = append(names, container.Name)
	}
	return names
}

// reasonAndMessage returns why an object has failed, in one line.
func reasonAndMessage(reason, message string) string {
	if reason != "" && message != "" {
		reason += ": "
	}
	return printable.Line(reason + message)
}

// clear deletes a test that has ended, unless it is kept.
func (r *runner) clear(ctx context.Context, test *liveTest, m *payload.Manifest, result *Result) {
	result.IsLeft = true
	if !r.options.deletes(result.State, m.Object().GetAnnotations()) {
		return
	}
	err := r.delete(ctx, test.in, test.object.GetNamespace(), test.object.GetName(), test.object.GetUID())
	if err != nil {
		result.Why = append(result.Why, "could not be deleted: "+printable.Line(err.Error()))
		return
	}
	result.IsLeft = false
}

func (r *runner) delete(ctx context.Context, resource cluster.Resource, namespace, name string, uid types.UID) error {
	err := r.cluster.Delete(ctx, resource, namespace, name, uid)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // deleted already, or replaced
		return nil
	}
	return err
}

// deletes reports whether a test is deleted when it has ended: as Helm's annotation has it or, without that, if it has
// passed.
func (o Options) deletes(state State, annotations map[string]string) bool {
	policies, isSet := payload.HelmHookDeletes(annotations)
	switch {
	case o.Keep:
		return false
	case !isSet:
		return state == Passed
	case state == Passed:
		return slices.Contains(policies, "hook-succeeded")
	default:
		return slices.Contains(policies, "hook-failed")
	}
}
