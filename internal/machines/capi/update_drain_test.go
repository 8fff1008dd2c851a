package capi_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// isCordoned reports whether the Node of the Machine takes no pods.
func (u *updateScene) isCordoned() bool {
	u.Helper()
	isCordoned, _, _ := unstructured.NestedBool(u.node().Object, "spec", "unschedulable")
	return isCordoned
}

// awaitUncordoned waits until the Node is schedulable, and lacks the annotation of the update.
func (u *updateScene) awaitUncordoned() {
	u.Helper()
	u.await("m1", func(*clusterv1.Machine) bool {
		_, isMarked := u.node().GetAnnotations()["machine.runlevel.dev/cordoned-for-update"]
		return !isMarked && !u.isCordoned()
	})
}

// TestANodeIsDrainedBeforeItsUpdate has the extension's settings request a drain. The node is drained once, by the
// drain rules.
func TestANodeIsDrainedBeforeItsUpdate(t *testing.T) {
	u := startUpdates(newScene(t), map[string]string{"drain": "true"})
	u.addRule("logs", clusterv1.MachineDrainRuleDrainConfig{Behavior: clusterv1.MachineDrainRuleDrainBehaviorSkip})
	node := &corev1.Node{}
	u.Must(u.Get(t.Context(), client.ObjectKey{Name: u.m.Status.NodeRef.Name}, node))
	web, logs := u.addPod(node, "web", nil), u.addPod(node, "logs", nil)
	budget := u.AddBudget("web", "web")
	u.answers(`{"status":"Success","retryAfterSeconds":1,"message":"half way"}`)
	u.trigger(2)
	u.awaitUpdating("InPlaceUpdating",
		"In-place update in progress: draining Node "+node.Name+": * Pod "+u.Namespace+"/web: cannot evict pod")
	if calls := u.calls(); len(calls) > 0 || !u.isCordoned() {
		t.Errorf("got %d calls of the extension, cordoned: %t; want none, cordoned: true", len(calls), u.isCordoned())
	}
	u.AwaitLifecycle(node, corev1.NodeDrainInProgress, corev1.NodeMaintenancePlanned)
	u.MustDelete(budget)
	u.awaitUpdating("InPlaceUpdating", "half way")
	u.AwaitLifecycle(node, corev1.NodeDrained, corev1.NodeMaintenanceInProgress)
	if err := u.Get(t.Context(), client.ObjectKeyFromObject(web), web); !apierrors.IsNotFound(err) {
		t.Errorf("get the evicted pod: got %v, want NotFound", err)
	}
	late := u.addPod(node, "late", nil) // the node is drained once
	u.answers(done)
	u.awaitUpdated()
	u.awaitUncordoned()
	u.AwaitLifecycle(node)
	for _, pod := range []*corev1.Pod{logs, late} {
		if err := u.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.DeletionTimestamp != nil {
			t.Errorf("pod %s: got deletion time %v, error %v; want a pod that is not deleted", pod.Name,
				pod.DeletionTimestamp, err)
		}
	}
}

// TestTheNodeOfAnotherHostIsNotDrainedForAnUpdate updates a Machine whose own Node was deleted, and under whose name
// another host has joined.
func TestTheNodeOfAnotherHostIsNotDrainedForAnUpdate(t *testing.T) {
	u := startUpdates(newScene(t), map[string]string{"drain": "true"})
	u.answers(done)
	node := &corev1.Node{}
	u.Must(u.Get(t.Context(), client.ObjectKey{Name: u.m.Status.NodeRef.Name}, node))
	rejoined := u.replaceHost(node, "m2")
	pod := u.addPod(rejoined, "web", nil)
	u.trigger(2)
	u.awaitUpdating("InPlaceUpdating", "draining Node "+node.Name+
		": neither its providerID nor its annotations identify it as the node of the Machine")
	u.MustPatch(u.m, `{"metadata": {"annotations": {"`+clusterv1.ExcludeNodeDrainingAnnotation+`": ""}}}`)
	u.awaitCalls(1)
	u.expectUntouched(rejoined, pod)
}

func TestANodeThatWasCordonedStaysCordoned(t *testing.T) {
	u := startUpdates(newScene(t), map[string]string{"drain": "true"})
	u.MustPatch(u.node(), `{"spec": {"unschedulable": true}}`)
	u.answers(done)
	u.trigger(2)
	u.awaitUpdated()
	u.MustDelete(u.controlPlane) // its deletion follows the end of the update
	u.AwaitGone(u.controlPlane)
	if !u.isCordoned() {
		t.Error("the Node is schedulable, want it cordoned")
	}
}

// TestInvalidDrainSettingHoldsTheUpdate has a setting that is neither true nor false. The extension is not called:
// without the drain, pods may be lost.
func TestInvalidDrainSettingHoldsTheUpdate(t *testing.T) {
	u := startUpdates(newScene(t), map[string]string{"drain": "yes"})
	u.answers(done)
	u.trigger(2)
	u.awaitUpdating("InPlaceUpdateFailed",
		`is not called, since spec.settings.drain is "yes": write "true" or "false" into ExtensionConfig `+u.Namespace)
	if calls := u.calls(); len(calls) > 0 || u.isCordoned() {
		t.Errorf("got %d calls of the extension, cordoned: %t; want none, cordoned: false", len(calls), u.isCordoned())
	}
	u.MustPatch(u.config, `{"spec": {"settings": {"drain": "false"}}}`)
	u.discover()
	u.awaitUpdated()
}

// TestADrainThatIsRequestedLaterEvictsNothing requests a drain after the first call of the extension, which may have
// stopped the kubelet by then: pods would not end.
func TestADrainThatIsRequestedLaterEvictsNothing(t *testing.T) {
	u := startUpdates(newScene(t), nil)
	node := &corev1.Node{}
	u.Must(u.Get(t.Context(), client.ObjectKey{Name: u.m.Status.NodeRef.Name}, node))
	pod := u.addPod(node, "web", nil)
	u.answers(`{"status":"Success","retryAfterSeconds":1}`)
	u.trigger(2)
	u.awaitCalls(1)
	u.MustPatch(u.config, `{"spec": {"settings": {"drain": "true"}}}`)
	u.discover()
	u.awaitCalls(len(u.calls()) + 2)
	u.expectUntouched(node, pod)
	u.answers(done)
	u.awaitUpdated()
}

// An update with a drain has at least leastUpdateWrites writes, and fewer than writesOfAnUpdate.
const leastUpdateWrites, writesOfAnUpdate = 7, 12

// TestRestartBetweenTheWritesOfAnUpdate kills the controller at each of its writes, before the write arrives and after.
// Another controller continues, and completes the update. The update has a drain, so that it also writes to the Node.
func TestRestartBetweenTheWritesOfAnUpdate(t *testing.T) {
	for name, isLate := range map[string]bool{"lost write": false, "late write": true} {
		t.Run(name, func(t *testing.T) {
			s := newStoppedScene(t)
			stop := s.start()
			u := startUpdates(s, map[string]string{"drain": "true"})
			for number := range writesOfAnUpdate {
				u.answers(done)
				s.writes.arm(number+1, isLate)
				u.trigger(number + 2)
				u.await("m1", func(m *clusterv1.Machine) bool {
					_, isUpdating := m.Annotations[inProgress]
					return s.writes.hasFailed() || number >= leastUpdateWrites && !isUpdating
				})
				stop()
				s.writes.arm(0, false)
				stop = s.start()
				u.awaitUpdated()
				u.awaitUncordoned()
			}
		})
	}
}
