package openshift_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/openshift"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A scenario is a namespace with machines, and a controller that sees no others.
type scenario struct {
	testing.TB
	namespace string
	client    client.Client
	provider  *scriptedProvider
	writes    *writeLog // of the controller
}

func newScenario(t *testing.T) *scenario {
	t.Helper()
	t.Parallel()
	namespace := stage.Namespace(t)
	return &scenario{
		TB: t, namespace: namespace, client: stage.Client(t), provider: newScriptedProvider(),
		writes: &writeLog{namespace: namespace, cut: make(chan struct{})},
	}
}

// quick has the controller look often.
var quick = openshift.MachineOptions{LongestWait: 300 * time.Millisecond}

// start starts the controller with the infrastructure of the script.
func (s *scenario) start(o openshift.MachineOptions) (stop func()) {
	s.Helper()
	o.Infrastructure = s.provider
	return s.startWith(o)
}

func (s *scenario) startWith(o openshift.MachineOptions) (stop func()) {
	s.Helper()
	config := sandboxtest.Tap(stage.Sandbox(s).Config, s.writes.tap)
	return stage.ManageIn(s.TB, s.namespace, config, func(mgr ctrl.Manager) error {
		return openshift.SetupWithManager(s.Context(), mgr, o)
	})
}

func (s *scenario) create(object client.Object) {
	s.Helper()
	if err := s.client.Create(s.Context(), object); err != nil {
		s.Fatal(err)
	}
}

// controlPlane is held by the scenario that has nodes of the control plane: one that is cordoned holds all others.
var controlPlane sync.Mutex

// haveControlPlane has other scenarios wait with their control planes until the nodes of this one are gone.
func (s *scenario) haveControlPlane() {
	controlPlane.Lock()
	s.Cleanup(controlPlane.Unlock)
}

// addNode makes a node that is ready, and has a name of its own.
func (s *scenario) addNode(name string, labels map[string]string) *corev1.Node {
	s.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + name, Labels: labels},
		// Only what is put there is on it.
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "test", Effect: corev1.TaintEffectNoSchedule}}},
	}
	s.create(node)
	s.Cleanup(func() { _ = s.client.Delete(context.Background(), node) }) // the test's own context has ended by then
	return machinetest.Await(s.TB, s.client, node, client.ObjectKeyFromObject(node), func(n *corev1.Node) bool {
		return readiness(n) == corev1.ConditionTrue
	})
}

func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

// podOn returns a pod that is to run on a node.
func (s *scenario) podOn(node *corev1.Node, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName: node.Name, Containers: []corev1.Container{{Name: "it", Image: "registry.example/it"}},
		},
	}
}

// addPod makes a pod on a node, and waits until it is ready.
func (s *scenario) addPod(name string, node *corev1.Node, annotations map[string]string) *corev1.Pod {
	s.Helper()
	pod := s.podOn(node, name)
	pod.Annotations = annotations
	return s.runPod(pod)
}

// runPod makes a pod, and waits until it is ready.
func (s *scenario) runPod(pod *corev1.Pod) *corev1.Pod {
	s.Helper()
	s.create(pod)
	return machinetest.Await(s.TB, s.client, pod, client.ObjectKeyFromObject(pod), func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	})
}

// addBudget has the pods of a name stay.
func (s *scenario) addBudget(name, app string) *policyv1.PodDisruptionBudget {
	s.Helper()
	least := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
	s.create(budget)
	return machinetest.Await(s.TB, s.client, budget, client.ObjectKeyFromObject(budget), func(b *policyv1.PodDisruptionBudget) bool {
		return b.Status.ObservedGeneration == b.Generation && b.Status.CurrentHealthy == 1
	})
}

// addMachine makes a machine, and waits until the controller has looked at its infrastructure. It is on a node unless
// that is nil.
func (s *scenario) addMachine(name string, node *corev1.Node, hooks machinev1beta1.LifecycleHooks) *machinev1beta1.Machine {
	s.Helper()
	m := &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: machinev1beta1.MachineSpec{
			ProviderSpec:   machinev1beta1.ProviderSpec{Value: &runtime.RawExtension{Raw: []byte(external)}},
			LifecycleHooks: hooks,
		},
	}
	s.create(m)
	seen := s.awaitMachine(name, func(m *machinev1beta1.Machine) bool {
		return conditionOf(m, machinev1beta1.InstanceExistsCondition).Type != "" && conditionOf(m, machinev1beta1.MachineDrainable).Type != ""
	})
	if node != nil {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"nodeRef":{"kind":"Node","name":"`+node.Name+`"}}}`))
		if err := s.client.Status().Patch(s.Context(), seen, patch); err != nil {
			s.Fatal(err)
		}
	}
	return seen
}

func (s *scenario) awaitMachine(name string, isWanted func(*machinev1beta1.Machine) bool) *machinev1beta1.Machine {
	s.Helper()
	return stage.AwaitMachine(s.TB, s.namespace, name, isWanted)
}

// awaitCondition waits until a condition has a status, and a message with a text in it.
func (s *scenario) awaitCondition(name string, kind machinev1beta1.ConditionType, status corev1.ConditionStatus, text string,
) *machinev1beta1.Machine {
	s.Helper()
	return s.awaitMachine(name, func(m *machinev1beta1.Machine) bool {
		condition := conditionOf(m, kind)
		return condition.Status == status && strings.Contains(condition.Message, text)
	})
}

// expectCondition compares a condition with the wanted one, but for its time.
func (s *scenario) expectCondition(m *machinev1beta1.Machine, want machinev1beta1.Condition) {
	s.Helper()
	got := conditionOf(m, want.Type)
	got.LastTransitionTime = metav1.Time{}
	if got != want {
		s.Errorf("the condition is %+v, want %+v", got, want)
	}
}

// change changes an object.
func (s *scenario) change(object client.Object, json string) {
	s.Helper()
	if err := s.client.Patch(s.Context(), object, client.RawPatch("application/merge-patch+json", []byte(json))); err != nil {
		s.Fatal(err)
	}
}

func (s *scenario) delete(objects ...client.Object) {
	s.Helper()
	for _, object := range objects {
		if err := s.client.Delete(s.Context(), object); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *scenario) awaitGone(object client.Object) {
	s.Helper()
	machinetest.AwaitGone(s.TB, s.client, object, client.ObjectKeyFromObject(object))
}

// read reads an object again.
func (s *scenario) read(object client.Object) {
	s.Helper()
	if err := s.client.Get(s.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		s.Fatal(err)
	}
}

// expectUntouched checks that a node takes pods, and that its pod is not being deleted.
func (s *scenario) expectUntouched(node *corev1.Node, pod *corev1.Pod) {
	s.Helper()
	s.read(node)
	s.read(pod)
	if node.Spec.Unschedulable || pod.DeletionTimestamp != nil {
		s.Errorf("node %s is cordoned: %t; pod %s is deleted: %v", node.Name, node.Spec.Unschedulable, pod.Name, pod.DeletionTimestamp)
	}
}

// expectEvents waits for an event of a machine, and checks that it was told that often.
func (s *scenario) expectEvents(name, reason string, want int) {
	s.Helper()
	reported := 0
	machinetest.Await(s.TB, s.client, &machinev1beta1.Machine{}, client.ObjectKey{Namespace: s.namespace, Name: name},
		func(*machinev1beta1.Machine) bool {
			var list eventsv1.EventList
			if err := s.client.List(s.Context(), &list, client.InNamespace(s.namespace)); err != nil {
				s.Fatal(err)
			}
			reported = 0
			for _, event := range list.Items {
				if event.Reason == reason && event.Regarding.Name == name {
					reported++
					if event.Series != nil {
						reported += int(event.Series.Count) - 1
					}
				}
			}
			return reported > 0
		})
	if reported != want {
		s.Errorf("event %s was told %d times, want %d", reason, reported, want)
	}
}

// hook returns hooks as a list.
func hook(names ...string) []machinev1beta1.LifecycleHook {
	var hooks []machinev1beta1.LifecycleHook
	for _, name := range names {
		hooks = append(hooks, machinev1beta1.LifecycleHook{Name: name, Owner: "owner-of-" + name})
	}
	return hooks
}
