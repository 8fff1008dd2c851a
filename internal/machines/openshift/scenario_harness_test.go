package openshift_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/machines/openshift"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A scenario is a namespace with machines, and a controller that sees no others.
type scenario struct {
	*machinetest.Fixture
	provider *scriptedProvider
	writes   *writeLog // writes of the controller
}

func newScenario(t *testing.T) *scenario {
	t.Helper()
	t.Parallel()
	f := shared.NewFixture(t)
	return &scenario{
		Fixture: f, provider: newScriptedProvider(),
		writes: &writeLog{namespace: f.Namespace, cut: make(chan struct{})},
	}
}

// quick makes the controller check often.
var quick = openshift.Options{LongestWait: 300 * time.Millisecond}

// start starts the controller with the infrastructure of the script.
func (s *scenario) start(o openshift.Options) (stop func()) {
	s.Helper()
	o.Infrastructure = s.provider
	return s.startWith(o)
}

func (s *scenario) startWith(o openshift.Options) (stop func()) {
	s.Helper()
	config := sandboxtest.Tap(shared.Sandbox(s).Config, s.writes.tap)
	return s.ManageWith(config, func(mgr ctrl.Manager) error {
		return openshift.SetupWithManager(s.Context(), mgr, o)
	})
}

// controlPlane is locked by the scenario that has nodes of the control plane, because a cordoned one holds all others.
var controlPlane sync.Mutex

// haveControlPlane blocks other scenarios with control planes until the nodes of this one are deleted.
func (s *scenario) haveControlPlane() {
	controlPlane.Lock()
	s.Cleanup(controlPlane.Unlock)
}

// addNode creates a ready node with a unique name.
func (s *scenario) addNode(name string, labels map[string]string) *corev1.Node {
	s.Helper()
	return s.AddNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-" + name, Labels: labels}})
}

func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

// addPod creates a pod on a node, and waits until it is ready.
func (s *scenario) addPod(name string, node *corev1.Node, annotations map[string]string) *corev1.Pod {
	s.Helper()
	pod := s.NewPod(name, node)
	pod.Annotations = annotations
	return s.RunPod(pod)
}

// addMachine creates a machine, and waits until the controller has read its infrastructure. It is on the node unless
// node is nil.
func (s *scenario) addMachine(name string, node *corev1.Node,
	hooks machinev1beta1.LifecycleHooks) *machinev1beta1.Machine {
	s.Helper()
	m := &machinev1beta1.Machine{
		ObjectMeta: s.Meta(name),
		Spec: machinev1beta1.MachineSpec{
			ProviderSpec:   machinev1beta1.ProviderSpec{Value: &runtime.RawExtension{Raw: []byte(external)}},
			LifecycleHooks: hooks,
		},
	}
	s.MustCreate(m)
	seen := s.awaitMachine(name, func(m *machinev1beta1.Machine) bool {
		return conditionOf(m, machinev1beta1.InstanceExistsCondition).Type != "" &&
			conditionOf(m, machinev1beta1.MachineDrainable).Type != ""
	})
	if node != nil {
		s.MustPatchStatus(seen, `{"status":{"nodeRef":{"kind":"Node","name":%q}}}`, node.Name)
	}
	return seen
}

func (s *scenario) awaitMachine(name string, isWanted func(*machinev1beta1.Machine) bool) *machinev1beta1.Machine {
	s.Helper()
	return s.AwaitMachine(name, isWanted)
}

// awaitCondition waits until a condition has a status, and a message with a text in it.
func (s *scenario) awaitCondition(name string, kind machinev1beta1.ConditionType, status corev1.ConditionStatus,
	text string,
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

// expectUntouched checks that a node takes pods, and that its pod is not being deleted.
func (s *scenario) expectUntouched(node *corev1.Node, pod *corev1.Pod) {
	s.Helper()
	s.MustGet(node)
	s.MustGet(pod)
	if node.Spec.Unschedulable || pod.DeletionTimestamp != nil {
		s.Errorf("node %s is cordoned: %t; pod %s is deleted: %v", node.Name, node.Spec.Unschedulable, pod.Name,
			pod.DeletionTimestamp)
	}
}

// expectEvents waits for an event of a machine, and checks that it was reported that often.
func (s *scenario) expectEvents(name, reason string, want int) {
	s.Helper()
	if reported := s.AwaitEvent(name, reason, ""); reported != want {
		s.Errorf("event %s was reported %d times, want %d", reason, reported, want)
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
