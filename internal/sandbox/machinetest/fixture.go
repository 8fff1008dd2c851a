package machinetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A Fixture is the namespace of one test, with the administrator's client. The methods of Fixture itself end the test
// if they fail.
type Fixture struct {
	client.Client
	testing.TB
	Namespace string
	sandbox   *SharedSandbox
}

// NewFixture creates a namespace for a test.
func (s *SharedSandbox) NewFixture(t testing.TB) *Fixture {
	t.Helper()
	return &Fixture{Client: s.Client(t), TB: t, Namespace: s.Namespace(t), sandbox: s}
}

// In returns the fixture for a subtest.
func (f *Fixture) In(t testing.TB) *Fixture {
	return &Fixture{Client: f.Client, TB: t, Namespace: f.Namespace, sandbox: f.sandbox}
}

// Config returns the admin's client configuration.
func (f *Fixture) Config() *rest.Config {
	f.Helper()
	return f.sandbox.Sandbox(f).Config
}

// Manage runs controllers in this process until the test ends, or stop is called. The controllers see the objects of
// the namespace and cluster-wide objects only, not the machines of other tests.
func (f *Fixture) Manage(setUp func(ctrl.Manager) error) (stop func()) {
	f.Helper()
	return f.ManageWith(f.Config(), setUp)
}

// ManageWith does the same as Manage, for controllers that reach the API server by a configuration of the test.
func (f *Fixture) ManageWith(config *rest.Config, setUp func(ctrl.Manager) error) (stop func()) {
	f.Helper()
	return f.sandbox.ManageIn(f, f.Namespace, config, setUp)
}

// AwaitMachine waits until isWanted returns true for a Machine of OpenShift's API, and returns the Machine.
func (f *Fixture) AwaitMachine(name string, isWanted func(*machinev1beta1.Machine) bool) *machinev1beta1.Machine {
	f.Helper()
	return Await(f, f, &machinev1beta1.Machine{}, f.Key(name), isWanted)
}

// Key returns the key of an object of the namespace.
func (f *Fixture) Key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: f.Namespace, Name: name}
}

// Meta returns the metadata of a new object of the namespace.
func (f *Fixture) Meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: f.Namespace, Name: name}
}

// Must ends the test with an error, if there is one.
func (f *Fixture) Must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// MustCreate creates objects.
func (f *Fixture) MustCreate(objects ...client.Object) {
	f.Helper()
	for _, object := range objects {
		f.Must(f.Create(f.Context(), object))
	}
}

// MustDelete deletes an object.
func (f *Fixture) MustDelete(object client.Object, options ...client.DeleteOption) {
	f.Helper()
	f.Must(f.Delete(f.Context(), object, options...))
}

// MustPatch applies a JSON merge patch to an object.
func (f *Fixture) MustPatch(object client.Object, format string, arguments ...any) {
	f.Helper()
	patch := mergePatch(fmt.Appendf(nil, format, arguments...))
	// The API server of a busy machine may not answer in time.
	f.Must(retry.OnError(wait.Backoff{Steps: 3}, apierrors.IsTimeout, func() error {
		return f.Patch(f.Context(), object, patch)
	}))
}

// MustPatchStatus applies a JSON merge patch to an object by its subresource status.
func (f *Fixture) MustPatchStatus(object client.Object, format string, arguments ...any) {
	f.Helper()
	f.Must(f.Status().Patch(f.Context(), object, mergePatch(fmt.Appendf(nil, format, arguments...))))
}

func mergePatch(patch []byte) client.Patch { return client.RawPatch(types.MergePatchType, patch) }

// MustGet reads an object again.
func (f *Fixture) MustGet(object client.Object) {
	f.Helper()
	f.Must(f.Get(f.Context(), client.ObjectKeyFromObject(object), object))
}

// MustList fills a list with the objects of the namespace.
func (f *Fixture) MustList(list client.ObjectList) {
	f.Helper()
	f.Must(f.List(f.Context(), list, client.InNamespace(f.Namespace)))
}

// Eventually polls until isWanted returns true.
func (f *Fixture) Eventually(what string, isWanted func() bool) {
	f.Helper()
	sandboxtest.Eventually(f, what, func(context.Context) bool { return isWanted() })
}

// AwaitGone waits until an object no longer exists. The object itself stays as it is.
func (f *Fixture) AwaitGone(object client.Object) {
	f.Helper()
	AwaitGone(f, f, object.DeepCopyObject().(client.Object), client.ObjectKeyFromObject(object))
}

// Events returns the events of an object of the namespace that have a reason.
func (f *Fixture) Events(name, reason string) []eventsv1.Event {
	f.Helper()
	var list eventsv1.EventList
	f.MustList(&list)
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool {
		return e.Regarding.Name != name || e.Reason != reason
	})
}

// AwaitEvent waits for an event of an object with a reason, and with a text in its note. It returns the number of
// reports of events with the reason.
func (f *Fixture) AwaitEvent(name, reason, text string) (count int) {
	f.Helper()
	f.Eventually(fmt.Sprintf("%s has an event %s with the text %q", name, reason, text), func() bool {
		events := f.Events(name, reason)
		count = len(events)
		for _, event := range events {
			if event.Series != nil {
				count += int(event.Series.Count) - 1
			}
		}
		return slices.ContainsFunc(events, func(e eventsv1.Event) bool { return strings.Contains(e.Note, text) })
	})
	return count
}

// AddNode creates a Node on which only pods run that name it, and waits until it is ready. The Node is deleted after
// the test.
func (f *Fixture) AddNode(node *corev1.Node) *corev1.Node {
	f.Helper()
	node.Spec.Taints = []corev1.Taint{{Key: "test", Effect: corev1.TaintEffectNoSchedule}}
	f.MustCreate(node)
	f.DeleteAfterwards(node)
	return Await(f, f, node, client.ObjectKeyFromObject(node), func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	})
}

// AwaitLifecycle waits until these conditions of a Node are true, of those about drains and maintenance, and no others;
// their order is that of the alphabet. It returns the Node.
func (f *Fixture) AwaitLifecycle(node *corev1.Node, want ...corev1.NodeConditionType) *corev1.Node {
	f.Helper()
	return Await(f, f, &corev1.Node{}, client.ObjectKeyFromObject(node), func(n *corev1.Node) bool {
		var got []corev1.NodeConditionType
		for _, c := range n.Status.Conditions {
			isOne := strings.HasPrefix(string(c.Type), "Drain") || strings.HasPrefix(string(c.Type), "Maintenance")
			if isOne && c.Status == corev1.ConditionTrue {
				got = append(got, c.Type)
			}
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

// DeleteAfterwards has an object deleted after the test, if it exists then.
func (f *Fixture) DeleteAfterwards(object client.Object) {
	f.Cleanup(func() { _ = f.Delete(context.Background(), object) }) // the test's own context has ended by then
}

// NewPod returns a pod for a Node, with the label app=NAME.
func (f *Fixture) NewPod(name string, node *corev1.Node) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: f.Meta(name)}
	pod.Labels = map[string]string{"app": name}
	pod.Spec = corev1.PodSpec{
		NodeName:   node.Name,
		Containers: []corev1.Container{{Name: "it", Image: "registry.example/it"}},
	}
	return pod
}

// RunPod creates a pod, and waits until it is ready.
func (f *Fixture) RunPod(pod *corev1.Pod) *corev1.Pod {
	f.Helper()
	f.MustCreate(pod)
	return Await(f, f, pod, client.ObjectKeyFromObject(pod), func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	})
}

// AddBudget creates a PodDisruptionBudget that keeps the one pod with a label app, and waits until the pod is counted.
func (f *Fixture) AddBudget(name, app string) *policyv1.PodDisruptionBudget {
	f.Helper()
	least := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: f.Meta(name)}
	budget.Spec.MinAvailable, budget.Spec.Selector = &least,
		&metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	f.MustCreate(budget)
	return Await(f, f, budget, client.ObjectKeyFromObject(budget), func(b *policyv1.PodDisruptionBudget) bool {
		return b.Status.ObservedGeneration == b.Generation && b.Status.CurrentHealthy == 1
	})
}
