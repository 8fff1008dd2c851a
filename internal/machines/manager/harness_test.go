package manager_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// A scene is an audited cluster of one test where kwok keeps nodes and pods alive. All its objects are in the namespace
// default.
type scene struct {
	client.Client
	t       *testing.T
	control *sandbox.Sandbox
	crashes []time.Time // crashes of the API server
}

func newScene(t *testing.T) *scene {
	t.Helper()
	control := startSandbox(t, 1)
	control.Config = rest.CopyConfig(control.Config)
	control.Config.QPS = -1
	return &scene{Client: connectAs(t, control.Config, "admin"), t: t, control: control}
}

// in is the scene for a part of a test.
func (s *scene) in(t *testing.T) *scene { return &scene{Client: s.Client, t: t, control: s.control} }

// manage runs all controllers of some APIs until the test ends.
func (s *scene) manage(dialects ...manager.Dialect) {
	s.t.Helper()
	config := rest.CopyConfig(s.control.Config)
	config.UserAgent = controllerAgent
	deployed.ManageAs(s.t, config, func(m ctrl.Manager) error {
		return manager.AddControllers(s.t.Context(), m, manager.Options{Dialects: dialects})
	})
}

// crash kills the API server and starts it again.
func (s *scene) crash() {
	s.t.Helper()
	s.must(s.control.Kill(sandbox.APIServer))
	s.crashes = append(s.crashes, time.Now())
	s.must(s.control.Resume(s.t.Context(), sandbox.APIServer))
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// each does something for the numbers below n, many at once.
func (s *scene) each(n int, do func(i int) error) {
	s.t.Helper()
	var group errgroup.Group
	group.SetLimit(30)
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	s.must(group.Wait())
}

// await waits until a function returns "". Otherwise the function describes what the wait is for.
func (s *scene) await(missing func() string) {
	s.t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(s.t.Context(), time.Second/4, patience, true,
		func(context.Context) (bool, error) {
			last = missing()
			return last == "", nil
		})
	if err != nil {
		s.t.Fatalf("%s: %v", last, err)
	}
}

// newMachine returns a machine of simulated infrastructure, whose end takes a while.
func newMachine(name string, end time.Duration, hooks machinev1beta1.LifecycleHooks) *machinev1beta1.Machine {
	return &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec:       machinev1beta1.MachineSpec{ProviderSpec: simulatedSpec(end), LifecycleHooks: hooks},
	}
}

func simulatedSpec(end time.Duration) machinev1beta1.ProviderSpec {
	text := fmt.Appendf(nil,
		`{"apiVersion": "infrastructure.runlevel.dev/v1alpha1", "kind": "KwokMachine", "spec": {"deleteAfter": %q}}`,
		end)
	return machinev1beta1.ProviderSpec{Value: &runtime.RawExtension{Raw: text}}
}

// newPod returns a pod bound to a node.
func newPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      name,
			Labels:    map[string]string{"app": name},
		},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "app", Image: "none"}},
		},
	}
}

// machines returns all machines.
func (s *scene) machines() []machinev1beta1.Machine {
	s.t.Helper()
	var list machinev1beta1.MachineList
	s.must(s.List(s.t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)))
	return list.Items
}

func (s *scene) awaitMachine(name string, isWanted func(*machinev1beta1.Machine) bool) *machinev1beta1.Machine {
	s.t.Helper()
	return machinetest.Await(s.t, s, &machinev1beta1.Machine{}, keyOf(name), isWanted)
}

func keyOf(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}
}

func isRunning(m *machinev1beta1.Machine) bool { return phaseOf(m) == machinev1beta1.PhaseRunning }

// awaitGone waits until a machine and its objects are deleted.
func (s *scene) awaitGone(machine string) {
	s.t.Helper()
	machinetest.AwaitGone(s.t, s, &machinev1beta1.Machine{}, keyOf(machine))
	machinetest.AwaitGone(s.t, s, &v1alpha1.KwokMachine{}, keyOf(machine))
	machinetest.AwaitGone(s.t, s, &corev1.Node{}, client.ObjectKey{Name: machine})
}

// isWhole returns whether neither the infrastructure of a machine nor its Node is being deleted.
func (s *scene) isWhole(machine string) bool {
	s.t.Helper()
	infrastructure, node := &v1alpha1.KwokMachine{}, &corev1.Node{}
	s.must(s.Get(s.t.Context(), keyOf(machine), infrastructure))
	s.must(s.Get(s.t.Context(), client.ObjectKey{Name: machine}, node))
	return infrastructure.DeletionTimestamp == nil && node.DeletionTimestamp == nil
}

// removeHook removes a hook of a machine as its owner does, if the machine still exists.
func (s *scene) removeHook(machine, hook string) {
	s.t.Helper()
	s.must(retry.RetryOnConflict(wait.Backoff{Steps: 100, Duration: 20 * time.Millisecond}, func() error {
		m := &machinev1beta1.Machine{}
		if err := s.Get(s.t.Context(), keyOf(machine), m); err != nil {
			return client.IgnoreNotFound(err)
		}
		before, hooks := m.DeepCopy(), &m.Spec.LifecycleHooks
		isIt := func(h machinev1beta1.LifecycleHook) bool { return h.Name == hook }
		hooks.PreDrain = slices.DeleteFunc(hooks.PreDrain, isIt)
		hooks.PreTerminate = slices.DeleteFunc(hooks.PreTerminate, isIt)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return client.IgnoreNotFound(s.Patch(s.t.Context(), m, patch))
	}))
}

// checkHistories waits until the audit log has the whole deletion of at least count machines, and checks that their
// histories violate no invariant. It reads only lines that contain one of the texts.
func (s *scene) checkHistories(count int, about ...string) map[string]*history {
	s.t.Helper()
	histories := awaitReleases(s.t, s.control, s.crashes, count, about...)
	s.reportViolations(histories)
	return histories
}

// reportViolations reports the violations in histories.
func (s *scene) reportViolations(histories map[string]*history) {
	s.t.Helper()
	for i, violation := range violationsOf(histories) {
		if i == 20 {
			s.t.Error("and more")
			break
		}
		s.t.Error(violation)
	}
}
