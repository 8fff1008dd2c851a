package manager_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/etcdguard/manager"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// startGuard runs the guard in this process. It starts before the API server answers, and waits for it.
func (s *scene) startGuard(t *testing.T) {
	t.Helper()
	options := s.guardOptions()
	options.Etcd.Patience = 15 * time.Second // longer than a member of a busy machine takes to answer
	options.Listen = s.Address(200) + ":8080"
	var isUp atomic.Bool
	var refused atomic.Int32
	config := sandboxtest.Before(s.api, func(*http.Request) error {
		if !isUp.Load() {
			refused.Add(1)
			return errors.New("the API server starts")
		}
		return nil
	})
	s.run(t, func(ctx context.Context) error { return manager.Run(ctx, config, options) })
	s.eventually("the guard asks for the API server", func(context.Context) error {
		if count := refused.Load(); count < 3 {
			return fmt.Errorf("it has asked %d times", count)
		}
		return nil
	})
	if alive, ready := s.probe(options.Listen, "/healthz"), s.probe(options.Listen, "/readyz"); alive != nil ||
		ready == nil {
		t.Errorf("without an API server, the guard is to live, and not to be ready: %v, %v", alive, ready)
	}
	isUp.Store(true)
	s.eventually("the guard is ready", func(context.Context) error { return s.probe(options.Listen, "/readyz") })
}

// probe returns the error of a probe, or nil if it succeeds.
func (s *scene) probe(address, path string) error {
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// TestScenarios runs scenarios with a control plane of three machines, one after the other.
func TestScenarios(t *testing.T) {
	s := newScene(t)
	s.guardNodes(t, s.namespace, 1, 2, 3)
	s.startGuard(t)
	s.awaitHooks(3)
	load := s.startLoad(t)
	t.Run("A13 a voter is replaced", s.testReplacement)
	t.Run("a learner of a machine being deleted is removed at once", s.testLearner)
	load.check(t)
	t.Run("an unhealthy member goes first", s.testUnhealthy)
	t.Run("an administrator's removal of the hook stays", s.testRemovedHook)
}

// TestAMemberOfAnotherHostDoesNotHoldAMachine lets the host of a staying member join under the name of a node whose
// machine is deleted.
func TestAMemberOfAnotherHostDoesNotHoldAMachine(t *testing.T) {
	s := newScene(t)
	s.startGuard(t)
	s.awaitHooks(3)
	s.replaceHost(t, 1, 2)
	s.delete(1)
	s.awaitMachineGone(1)
	s.awaitMembers("2 3 4")
}

// guardNodes puts a guard pod onto each node, and a disruption budget of which none may go.
func (s *scene) guardNodes(t *testing.T, namespace string, numbers ...int) {
	t.Helper()
	for _, number := range numbers {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace,
				Name:      s.node(number),
				Labels:    map[string]string{"app": "guard"},
			},
		}
		spec := fmt.Sprintf(`{nodeName: %s, securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, containers: [{
			name: guard, image: registry.example/guard, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}`, s.node(number))
		if err := yaml.Unmarshal([]byte(spec), &pod.Spec); err != nil {
			t.Fatal(err)
		}
		if err := s.client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	all := intstr.FromInt(len(numbers))
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "guard"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &all,
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guard"}},
		},
	}
	if err := s.client.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	machinetest.Await(t, s.client, budget, client.ObjectKeyFromObject(budget),
		func(b *policyv1.PodDisruptionBudget) bool {
			return b.Status.CurrentHealthy == int32(len(numbers)) && b.Status.DisruptionsAllowed == 0
		})
}

func (s *scene) testReplacement(t *testing.T) {
	s.allowMembers(false)
	s.delete(1)
	s.awaitHeld(1, "waiting for another machine of the control plane, and a learner on it")
	s.eventually("there are four machines", func(context.Context) error {
		if s.machine(4) == "" {
			return errors.New("there is no fourth")
		}
		return nil
	})
	if node := s.getNode(t, 1); node.Spec.Unschedulable {
		t.Error("the node is cordoned while its member votes")
	}
	s.awaitMembers("1 2 3")
	s.allowMembers(true)
	s.awaitMachineGone(1)
	s.awaitMembers("2 3 4")
	want := []string{"promote", "remove", "remove hook " + s.machine(1), "delete " + s.node(1)}
	done := slices.DeleteFunc(s.gate.matching(""), func(write string) bool {
		return strings.HasPrefix(write, "add hook ") || write == "move leader"
	})
	if !slices.Equal(done, want) {
		t.Errorf("the guard wrote %q, want %q", done, want)
	}
}

func (s *scene) testLearner(t *testing.T) {
	s.scale(t, 4)
	s.awaitMembers("2 3 4 5?")
	s.awaitHooks(4)
	s.allowMembers(false)
	m := s.shared.AwaitMachine(t, s.namespace, s.machine(5), hasHook)
	if err := s.patch(t.Context(), m,
		`{"metadata":{"annotations":{"machine.openshift.io/delete-machine":"yes"}}}`); err != nil {
		t.Fatal(err)
	}
	s.scale(t, 3)
	s.awaitMachineGone(5)
	s.awaitMembers("2 3 4")
}

func (s *scene) scale(t *testing.T, replicas int32) {
	t.Helper()
	set := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "control-plane"}}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
		t.Fatal(err)
	}
	base := set.DeepCopy()
	set.Spec.Replicas = &replicas
	if err := s.client.Patch(t.Context(), set, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
}

func (s *scene) testUnhealthy(t *testing.T) {
	s.kill(3)
	s.delete(2)
	s.delete(3)
	s.awaitMembers("2 4") // there is no replacement yet
	s.awaitMachineGone(3)
	s.awaitHeld(2, "waiting for another machine of the control plane, and a learner on it")
	s.allowMembers(true)
	s.awaitMachineGone(2)
	s.awaitHooks(3)
	s.eventually("there are three voters", func(ctx context.Context) error {
		found, err := s.members(ctx)
		if now := describeMembers(found); err == nil && (len(found) != 3 || strings.Contains(now, "?")) {
			return errors.New(now)
		}
		return err
	})
}

func (s *scene) testRemovedHook(t *testing.T) {
	before, err := s.members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.allowMembers(false)
	s.delete(4)
	s.awaitHeld(4, "waiting for another machine")
	m := s.shared.AwaitMachine(t, s.namespace, s.machine(4), func(*machinev1beta1.Machine) bool { return true })
	if err := s.patch(t.Context(), m, `{"spec":{"lifecycleHooks":{"preDrain":[]}}}`); err != nil {
		t.Fatal(err)
	}
	s.awaitMachineGone(4)
	s.awaitMembers(describeMembers(before)) // it is left to the administrator
	if _, err := s.etcdCluster.client.Get(t.Context(), "health"); err != nil {
		t.Error(err)
	}
}
