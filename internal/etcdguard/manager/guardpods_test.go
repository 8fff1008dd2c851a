package manager_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestAGuardPodThatStaysHoldsNoMember makes a member stop, and its machine be deleted, while the guard can't delete the
// pod that holds the drain of another machine.
func TestAGuardPodThatStaysHoldsNoMember(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	s := newScene(t)
	s.guardNodes(t, s.namespace, 1, 2)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "guard"}}
	// The budget protects any number of pods.
	if err := s.patch(t.Context(), budget, `{"spec":{"minAvailable":100}}`); err != nil {
		t.Fatal(err)
	}
	s.startGuard(t)
	s.awaitHooks(3)
	t.Run("its deletion is refused", s.testRefusedDeletion)
	t.Run("another one is created at once", s.testRecreatedPod)
	t.Run("another one of its name is elsewhere", s.testPodOfTheSameName)
}

// testRefusedDeletion makes an admission policy refuse the deletion of pods.
func (s *scene) testRefusedDeletion(t *testing.T) {
	allow := s.refuseDeletions(t, s.node(1))
	await := s.atFirst("delete "+s.node(1), func() {})
	s.delete(1)
	await(t)
	s.kill(3)
	s.delete(3)
	s.awaitMembers("2 4 5")
	allow()
	s.awaitMachineGone(1)
	s.awaitMachineGone(3)
}

// refuseDeletions makes the API server refuse deletions of pods, and waits until that of an existing pod is refused.
func (s *scene) refuseDeletions(t *testing.T, pod string) (allow func()) {
	t.Helper()
	s.create(t,
		`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: %[1]s}, spec: {
		matchConstraints: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}},
			resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [pods]}]},
		validations: [{expression: "false", message: pods stay}]}}`, s.namespace)
	binding := s.create(t,
		`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: %[1]s},
		spec: {policyName: %[1]s, validationActions: [Deny]}}`, s.namespace)
	allow = func() { _ = s.client.Delete(context.Background(), binding) } // the test's own context may have ended
	t.Cleanup(allow)
	s.eventually("deletions are refused", func(ctx context.Context) error {
		refused := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: pod}}
		if err := s.client.Delete(ctx, refused, client.DryRunAll); err == nil ||
			!strings.Contains(err.Error(), "pods stay") {
			return fmt.Errorf("the answer is %v", err)
		}
		return nil
	})
	return allow
}

// testRecreatedPod creates a pod again whenever the guard has deleted it, before the guard receives the response.
func (s *scene) testRecreatedPod(t *testing.T) {
	pod := &corev1.Pod{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: s.node(2)}, pod); err != nil {
		t.Fatal(err)
	}
	var count atomic.Int32
	var isOver atomic.Bool
	s.gate.set(nil, func(write string) bool {
		if !strings.HasPrefix(write, "delete ") || isOver.Load() {
			return false
		}
		successor := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.namespace,
				Name:      fmt.Sprintf("%s-%d", pod.Name, count.Add(1)),
				Labels:    pod.Labels,
			}, Spec: pod.Spec,
		}
		if err := s.client.Create(s.Context(), successor); err != nil {
			t.Error(err)
		}
		return false
	})
	s.delete(2)
	s.eventually("the pod is deleted for a second time", func(context.Context) error {
		if count.Load() < 2 {
			return fmt.Errorf("got %d deletions, want 2", count.Load())
		}
		return nil
	})
	s.kill(4)
	s.delete(4)
	s.awaitMembers("5 6 7")
	isOver.Store(true)
	s.awaitMachineGone(2)
	s.awaitMachineGone(4)
}

// testPodOfTheSameName creates a guard pod again, on the node of another member, before the guard deletes the first
// one: the new pod must stay.
func (s *scene) testPodOfTheSameName(t *testing.T) {
	const guardPod = `{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: moving, labels: {app: guard}}, spec: {nodeName: %s,
		securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, containers: [{
		name: guard, image: registry.example/guard, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}`
	first, second := s.create(t, guardPod, s.namespace, s.node(5)), parse(t, guardPod, s.namespace, s.node(6))
	runs := func(ctx context.Context) (bool, error) {
		pod := &corev1.Pod{}
		err := s.client.Get(ctx, client.ObjectKeyFromObject(first), pod)
		return pod.Status.Phase == corev1.PodRunning, err
	}
	s.eventually("the pod runs, because a budget does not protect pending pods",
		func(ctx context.Context) error {
			if isRunning, err := runs(ctx); err != nil || !isRunning {
				return fmt.Errorf("runs: %t, error %v", isRunning, err)
			}
			return nil
		})
	await := s.atFirst("delete moving", func() {
		if err := s.client.Delete(s.Context(), first, client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
		// kwok also deletes the first pod, by its name: until the new one runs, that delete may be about to come
		err := wait.PollUntilContextCancel(s.Context(), time.Second/10, true, func(ctx context.Context) (bool, error) {
			isRunning, err := runs(ctx)
			if apierrors.IsNotFound(err) {
				return false, s.client.Create(ctx, second.DeepCopy())
			}
			return isRunning, err
		})
		if err != nil {
			t.Error(err)
		}
	})
	s.delete(5)
	await(t)
	s.awaitMachineGone(5)
	pod := &corev1.Pod{}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(second), pod); err != nil ||
		pod.DeletionTimestamp != nil {
		t.Errorf("pod of the other node: got deletion time %v, error %v; want it to exist", pod.DeletionTimestamp, err)
	}
}
