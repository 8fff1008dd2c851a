package capi_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
)

const quorumHook = preTerminate + rolloutrules.QuorumHook

// startGuardedUpdates adds an extension and a Machine that has the hook of the quorum guard. The test is the guard.
func startGuardedUpdates(t *testing.T, settings map[string]string) *updateScene {
	u := startUpdates(newScene(t), settings)
	u.MustPatch(u.m, `{"metadata": {"annotations": {%q: "clusteroperator/etcd"}}}`, quorumHook)
	return u
}

// awaitRequest waits for a request to the guard, and for the condition that reports it.
func (u *updateScene) awaitRequest() *clusterv1.Machine {
	u.Helper()
	m := u.awaitUpdating("InPlaceUpdating",
		"In-place update in progress: waiting for the etcd quorum guard to permit it")
	if m.Annotations[annotation.UpdateRequested] == "" || len(u.calls()) > 0 {
		u.Errorf("got %d calls of the extension, annotations %q; want none, and a request to the guard", len(u.calls()),
			m.Annotations)
	}
	return m
}

// permit answers a request, as the guard does.
func (u *updateScene) permit(m *clusterv1.Machine) {
	u.Helper()
	u.MustPatch(u.m, `{"metadata": {"annotations": {%q: %q, %q: null}}}`,
		annotation.UpdateAllowed, m.Annotations[annotation.UpdateRequested],
		annotation.UpdateHeld)
}

// TestAnExtensionIsCalledOnceTheGuardPermitsIt: with the reason of the guard meanwhile, not by a permission of a minute
// ago, and once for all calls.
func TestAnExtensionIsCalledOnceTheGuardPermitsIt(t *testing.T) {
	u := startGuardedUpdates(t, nil)
	u.answers(`{"status":"Success","retryAfterSeconds":1,"message":"half way"}`)
	u.trigger(2)
	first := u.awaitRequest()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: u.m.Status.NodeRef.Name}}
	u.AwaitLifecycle(node, corev1.NodeMaintenancePlanned)
	u.MustPatch(u.m, `{"metadata": {"annotations": {%q: "member 3 does not answer"}}}`,
		annotation.UpdateHeld)
	u.awaitUpdating("InPlaceUpdating", "waiting for the etcd quorum guard to permit it: member 3 does not answer")
	u.ahead.Store(int64(time.Minute))
	u.permit(first)
	again := u.await("m1", func(m *clusterv1.Machine) bool {
		return m.Annotations[annotation.UpdateRequested] != first.Annotations[annotation.UpdateRequested]
	})
	if calls := u.calls(); len(calls) > 0 {
		t.Errorf("got %d calls of the extension by a permission of a minute ago, want none", len(calls))
	}
	u.permit(again)
	m := u.awaitUpdating("InPlaceUpdating", "half way")
	if value, ok := m.Annotations[annotation.UpdateRequested]; ok {
		t.Errorf("annotation %s: got %q, want none", annotation.UpdateRequested, value)
	}
	u.awaitCalls(2)
	u.answers(done)
	u.await("m1", func(m *clusterv1.Machine) bool { return !rolloutrules.IsUpdating(m) && len(m.Annotations) == 1 })
	u.AwaitLifecycle(node)
	u.removeHook(u.m, quorumHook)
	u.awaitUpdated()
}

// TestTheGuardIsAskedAfterTheDrain: a permission before it may be hours old.
func TestTheGuardIsAskedAfterTheDrain(t *testing.T) {
	u := startGuardedUpdates(t, map[string]string{"drain": "true"})
	node := &corev1.Node{}
	u.Must(u.Get(t.Context(), client.ObjectKey{Name: u.m.Status.NodeRef.Name}, node))
	u.addPod(node, "web", nil)
	budget := u.AddBudget("web", "web")
	u.answers(done)
	u.trigger(2)
	m := u.awaitUpdating("InPlaceUpdating", "draining Node "+node.Name)
	if value, ok := m.Annotations[annotation.UpdateRequested]; ok {
		t.Errorf("request to the guard during the drain: got %q, want none", value)
	}
	u.MustDelete(budget)
	u.permit(u.awaitRequest())
	u.awaitCalls(1)
	u.removeHook(u.m, quorumHook)
	u.awaitUpdated()
	u.awaitUncordoned()
}

// TestAnUpdateThatIsGivenUpLeavesNoRequest of which the guard would go on to report why it does not permit it.
func TestAnUpdateThatIsGivenUpLeavesNoRequest(t *testing.T) {
	u := startGuardedUpdates(t, nil)
	u.answers(done)
	u.trigger(2)
	u.awaitRequest()
	u.MustPatch(u.m, `{"metadata": {"annotations": {%q: "no", %q: null, %q: null}}}`, annotation.UpdateHeld,
		inProgress, quorumHook)
	u.awaitUpdated()
	if calls := u.calls(); len(calls) > 0 {
		t.Errorf("got %d calls of the extension, want none", len(calls))
	}
}

// TestAGuardThatComesLaterDoesNotStopAnUpdate: the extension has stopped a member by then, for which the guard permits
// nothing until the update has ended.
func TestAGuardThatComesLaterDoesNotStopAnUpdate(t *testing.T) {
	u := startUpdates(newScene(t), nil)
	u.answers(`{"status":"Success","retryAfterSeconds":1,"message":"half way"}`)
	u.trigger(2)
	u.awaitCalls(1)
	u.MustPatch(u.m, `{"metadata": {"annotations": {%q: "clusteroperator/etcd"}}}`, quorumHook)
	u.awaitCalls(len(u.calls()) + 2)
	u.answers(done)
	u.await("m1", func(m *clusterv1.Machine) bool { return !rolloutrules.IsUpdating(m) && len(m.Annotations) == 1 })
	u.removeHook(u.m, quorumHook)
	u.awaitUpdated()
}
