package machinehook_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/infra/kwok"
	"github.com/runlevel/runlevel/internal/machines/openshift"
	"github.com/runlevel/runlevel/internal/machines/openshift/nodelink"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/pkg/machinehook"
)

var shared = machinetest.New(sandbox.Options{Nodes: sandbox.NoNodes})

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// addresses counts the addresses that machines have got.
var addresses atomic.Int32

// A fixture is a namespace with machines, the controllers that delete them, and controllers of hooks.
type fixture struct{ *machinetest.Fixture }

// newFixture creates a namespace, and runs the machine controllers for it.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	s := &fixture{shared.NewFixture(t)}
	s.Manage(func(mgr ctrl.Manager) error {
		if err := nodelink.SetupWithManager(t.Context(), mgr); err != nil {
			return err
		}
		if err := kwok.SetupWithManager(mgr); err != nil {
			return err
		}
		return openshift.SetupWithManager(t.Context(), mgr, openshift.Options{LongestWait: time.Second})
	})
	return s
}

// serve runs the controller of a hook like a separate process.
func (f *fixture) serve(h machinehook.Hook) (stop func()) {
	f.Helper()
	return f.serveBy(shared.Sandbox(f).Config, h)
}

func (f *fixture) serveBy(config *rest.Config, h machinehook.Hook) (stop func()) {
	f.Helper()
	return f.ManageWith(config, func(mgr ctrl.Manager) error { return h.SetupWithManager(mgr) })
}

// add creates a machine that runs once its node exists. Nodes have the names of their machines, so each test must use
// other names.
func (f *fixture) add(name string, hooks machinev1beta1.LifecycleHooks) *machinev1beta1.Machine {
	f.Helper()
	m := &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace,
			Name:      f.Namespace + "-" + name,
			Labels:    map[string]string{"role": "web"},
		},
		Spec: machinev1beta1.MachineSpec{LifecycleHooks: hooks,
			ProviderSpec: machinev1beta1.ProviderSpec{Value: &runtime.RawExtension{
				Raw: fmt.Appendf(nil,
					`{"apiVersion":"infrastructure.runlevel.dev/v1alpha1","kind":"KwokMachine","spec":{"address":%q}}`,
					newAddress()),
			}}},
	}
	f.MustCreate(m)
	f.DeleteAfterwards(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name}})
	return f.await(m, func(m *machinev1beta1.Machine) bool { return m.Status.NodeRef != nil })
}

// newAddress returns one for a machine: no controller sees the machines of all tests, so that it could choose.
func newAddress() string {
	n := addresses.Add(1)
	return fmt.Sprintf("127.1.%d.%d", n/250, n%250+1)
}

func (f *fixture) await(m *machinev1beta1.Machine,
	isWanted func(*machinev1beta1.Machine) bool) *machinev1beta1.Machine {
	f.Helper()
	return f.AwaitMachine(m.Name, isWanted)
}

// awaitHook waits until a machine has a hook, or has it no more.
func (f *fixture) awaitHook(m *machinev1beta1.Machine, h machinehook.Hook, exists bool) *machinev1beta1.Machine {
	f.Helper()
	return f.await(m, func(m *machinev1beta1.Machine) bool {
		return slices.Contains(hooksOf(m), described(h)) == exists
	})
}

// hooksOf are the hooks of a machine, as stage, name and owner.
func hooksOf(m *machinev1beta1.Machine) []string {
	var list []string
	for _, h := range m.Spec.LifecycleHooks.PreDrain {
		list = append(list, fmt.Sprintf("%s %s %s", deletion.BeforeDrain, h.Name, h.Owner))
	}
	for _, h := range m.Spec.LifecycleHooks.PreTerminate {
		list = append(list, fmt.Sprintf("%s %s %s", deletion.BeforeTerminate, h.Name, h.Owner))
	}
	return list
}

func described(h machinehook.Hook) string {
	return fmt.Sprintf("%s %s %s", h.Stage, h.Name, h.Owner)
}

// A script answers for a hook as a test reports, and notes the calls.
type script struct {
	mu     sync.Mutex
	answer func() (machinehook.HookAnswer, error)
	calls  []machinehook.HeldMachine
}

// newScript returns a script whose hook waits.
func newScript() *script {
	s := &script{}
	s.setAnswer(waiting)
	return s
}

// The answers of hooks.
func waiting() (machinehook.HookAnswer, error) {
	return machinehook.HookAnswer{Message: "the queue has 3 entries", After: time.Second}, nil
}
func done() (machinehook.HookAnswer, error) { return machinehook.HookAnswer{IsDone: true}, nil }

// setAnswer changes the answer of the hook.
func (s *script) setAnswer(answer func() (machinehook.HookAnswer, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *script) act(_ context.Context, m machinehook.HeldMachine) (machinehook.HookAnswer, error) {
	s.mu.Lock()
	s.calls = append(s.calls, m)
	answer := s.answer
	s.mu.Unlock()
	return answer()
}

// acted returns the calls so far.
func (s *script) acted() []machinehook.HeldMachine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// hook returns a hook that asks the script.
func (s *script) hook(name string, stage deletion.Stage) machinehook.Hook {
	return machinehook.Hook{
		Name: name, Owner: name + "-operator", Stage: stage, Machine: &machinev1beta1.Machine{},
		Selector: labels.SelectorFromSet(labels.Set{"role": "web"}), Act: s.act,
	}
}
