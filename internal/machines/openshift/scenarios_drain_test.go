package openshift_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/conditions"
	"github.com/runlevel/runlevel/internal/machines/openshift"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// TestA7BudgetHoldsTheDrain has a disruption budget keep a pod: the Machine reports so, and continues once it is
// loosened.
func TestA7BudgetHoldsTheDrain(t *testing.T) {
	s := newScenario(t)
	s.start(quick)
	node := s.addNode("n", nil)
	pod := s.addPod("web", node, nil)
	budget := s.AddBudget("keep-web", "web")
	m := s.addMachine("a", node, machinev1beta1.LifecycleHooks{})
	s.MustDelete(m)
	m = s.awaitCondition("a", machinev1beta1.MachineDrained, corev1.ConditionFalse, "")
	s.provider.forget() // it was looked at until the machine was deleted
	s.expectCondition(m, machinev1beta1.Condition{
		Type: machinev1beta1.MachineDrained, Status: corev1.ConditionFalse,
		Reason: machinev1beta1.MachineDrainError, Severity: machinev1beta1.ConditionSeverityWarning,
		Message: "could not drain machine: pod " + s.Namespace + "/web is held by PodDisruptionBudget keep-web, " +
			"which allows no disruption: 1 healthy, 1 needed",
	})
	s.expectEvents("a", "DrainRequeued", 1)
	// The drain is retried, and the Machine stays.
	machinetest.Await(s, s, m, client.ObjectKeyFromObject(m), func(*machinev1beta1.Machine) bool {
		return len(s.writes.matching("POST pods/web/eviction: 429")) > 2
	})
	s.AwaitLifecycle(node, corev1.NodeDrainInProgress, corev1.NodeMaintenancePlanned)
	if writes := s.writes.matching("PATCH nodes/n/status"); len(writes) != 1 {
		t.Errorf("writes of the node's conditions while its drain is retried: got %q, want one", writes)
	}
	s.MustGet(pod)
	if pod.DeletionTimestamp != nil {
		t.Error("the pod is deleted in spite of its budget")
	}
	if calls := s.provider.callsOf(""); len(calls) > 0 {
		t.Errorf("calls of the provider before the end of the drain: got %v, want none", calls)
	}
	if ptr.Deref(m.Status.Phase, "") != machinev1beta1.PhaseDeleting {
		t.Errorf("phase: got %q, want Deleting", ptr.Deref(m.Status.Phase, ""))
	}
	if status := s.writes.matching("machines/a/status"); len(status) > 6 {
		t.Errorf("each try writes the status: %q", status)
	}
	s.provider.configure(func() { s.provider.isSlow = true })
	s.MustPatch(budget, `{"spec":{"minAvailable":0}}`)
	m = s.awaitCondition("a", machinev1beta1.MachineDrained, corev1.ConditionTrue, "")
	s.expectCondition(m, machinev1beta1.Condition{
		Type: machinev1beta1.MachineDrained, Status: corev1.ConditionTrue, Message: "Drain finished successfully",
	})
	s.AwaitGone(pod)
	s.AwaitLifecycle(node, corev1.NodeDrained, corev1.NodeMaintenancePlanned)
	s.provider.finish()
	s.AwaitGone(m)
	s.AwaitGone(node)
}

// TestNodeConditionsOfADeletion has hooks hold a machine before its drain and after it, and an administrator uncordon
// the drained node.
func TestNodeConditionsOfADeletion(t *testing.T) {
	s := newScenario(t)
	s.start(quick)
	node := s.addNode("n", nil)
	m := s.addMachine("a", node, machinev1beta1.LifecycleHooks{
		PreDrain: hook("Migrate"), PreTerminate: hook("Detach"),
	})
	s.MustDelete(m)
	s.AwaitLifecycle(node, corev1.NodeMaintenancePlanned)
	s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preDrain":null}}}`)
	node = s.AwaitLifecycle(node, corev1.NodeDrained, corev1.NodeMaintenancePlanned)
	got := conditions.OfNode(node, corev1.NodeDrained)
	if want := "deletion of Machine " + s.Namespace + "/a"; got.Reason != "MachineDeletion" || got.Message != want {
		t.Errorf("Drained: got reason %q, message %q; want MachineDeletion, %q", got.Reason, got.Message, want)
	}
	s.MustPatch(node, `{"spec":{"unschedulable":false}}`)
	s.AwaitLifecycle(node, corev1.NodeMaintenancePlanned)
	s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preTerminate":null}}}`)
	s.AwaitGone(node)
}

// TestFinalizersHoldTheDrain makes a finalizer keep a pod that has ended: the Machine names both.
func TestFinalizersHoldTheDrain(t *testing.T) {
	s := newScenario(t)
	var looks atomic.Int32
	s.writes.hold = func(request *http.Request) {
		if strings.HasPrefix(request.URL.Query().Get("fieldSelector"), "spec.nodeName=") {
			looks.Add(1)
		}
	}
	s.start(openshift.Options{})
	node := s.addNode("n", nil)
	pod := s.NewPod("web", node)
	pod.Finalizers, pod.Spec.TerminationGracePeriodSeconds = []string{"example.org/keep"}, new(int64)
	s.RunPod(pod)
	m := s.addMachine("a", node, machinev1beta1.LifecycleHooks{})
	s.MustDelete(m)
	m = s.awaitCondition("a", machinev1beta1.MachineDrained, corev1.ConditionFalse, "")
	s.expectCondition(m, machinev1beta1.Condition{
		Type: machinev1beta1.MachineDrained, Status: corev1.ConditionFalse,
		Reason: machinev1beta1.MachineDrainError, Severity: machinev1beta1.ConditionSeverityWarning,
		Message: "could not drain machine: pod " + s.Namespace +
			"/web has terminated; its finalizers hold it: example.org/keep",
	})
	if looks := looks.Load(); looks > 5 { // after which pods are reported that end by themselves
		t.Errorf("reported after %d looks, want at most 5", looks)
	}
	s.expectEvents("a", "DrainRequeued", 1)
	s.MustPatch(pod, `{"metadata":{"finalizers":null}}`)
	s.AwaitGone(m)
}

// TestA8UnreachableNodeIsDrained has an unreachable node: the drain does not wait for its pods, but respects budgets.
func TestA8UnreachableNodeIsDrained(t *testing.T) {
	s := newScenario(t)
	s.start(quick)
	node := s.addNode("n", nil)
	stays := map[string]string{"sandbox.runlevel.dev/stop-after": "1h"}
	web, kept := s.addPod("web", node, stays), s.addPod("kept", node, stays)
	budget := s.AddBudget("keep", "kept")
	m := s.addMachine("a", node, machinev1beta1.LifecycleHooks{PreTerminate: hook("Detach")})
	if err := sandbox.SilenceNode(t.Context(), shared.Kubernetes(t), node.Name); err != nil {
		t.Fatal(err)
	}
	silent := client.RawPatch(types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`))
	if err := s.Status().Patch(t.Context(), node, silent); err != nil { // sooner than its controller finds it
		t.Fatal(err)
	}
	machinetest.Await(s, s, node, client.ObjectKeyFromObject(node), func(n *corev1.Node) bool {
		return readiness(n) == corev1.ConditionUnknown
	})
	s.MustDelete(m)
	m = s.awaitMachine("a", func(m *machinev1beta1.Machine) bool { // the second of grace is over
		message := conditionOf(m, machinev1beta1.MachineDrained).Message
		return strings.Contains(message, "PodDisruptionBudget keep") && !strings.Contains(message, "/web")
	})
	s.MustDelete(budget)
	s.awaitCondition("a", machinev1beta1.MachineDrained, corev1.ConditionTrue, "Drain finished successfully")
	for _, pod := range []*corev1.Pod{web, kept} {
		s.MustGet(pod)
		if grace := ptr.Deref(pod.DeletionGracePeriodSeconds, -1); grace < 0 || grace > 1 {
			t.Errorf("pod %s has %d s of grace", pod.Name, grace)
		}
	}
	s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preTerminate":null}}}`)
	s.AwaitGone(m)
	s.AwaitGone(node)
}

// TestA9ControlPlaneNodesGoOneByOne deletes two nodes of the control plane at once, and has both passes see that none
// is cordoned.
func TestA9ControlPlaneNodesGoOneByOne(t *testing.T) {
	s := newScenario(t)
	s.haveControlPlane()
	var looked atomic.Int32
	bothLooked := make(chan struct{})
	s.writes.hold = func(request *http.Request) {
		if request.URL.Query().Get("fieldSelector") != "spec.unschedulable=true" {
			return
		}
		switch looked.Add(1) {
		case 1:
			select {
			case <-bothLooked:
			case <-request.Context().Done():
			}
		case 2:
			close(bothLooked)
		}
	}
	s.start(quick)
	s.provider.configure(func() { s.provider.isSlow = true })
	first := s.addNode("n1", map[string]string{"node-role.kubernetes.io/control-plane": ""})
	second := s.addNode("n2", map[string]string{"node-role.kubernetes.io/master": ""})
	a := s.addMachine("m1", first, machinev1beta1.LifecycleHooks{})
	b := s.addMachine("m2", second, machinev1beta1.LifecycleHooks{})
	s.writes.arm(0, false)
	s.MustDelete(a)
	s.MustDelete(b)
	isDrained := func(m *machinev1beta1.Machine) bool {
		return conditionOf(m, machinev1beta1.MachineDrained).Status == corev1.ConditionTrue
	}
	machinetest.Await(s, s, a, client.ObjectKeyFromObject(a), func(*machinev1beta1.Machine) bool {
		s.MustGet(b)
		return isDrained(a) || isDrained(b)
	})
	if isDrained(b) {
		a, b, first, second = b, a, second, first
	}
	b = s.awaitCondition(b.Name, machinev1beta1.MachineDrained, corev1.ConditionFalse, "")
	s.expectCondition(b, machinev1beta1.Condition{
		Type: machinev1beta1.MachineDrained, Status: corev1.ConditionFalse,
		Reason: machinev1beta1.MachineDrainError, Severity: machinev1beta1.ConditionSeverityWarning,
		Message: "could not drain machine: drain not permitted: control plane nodes are drained one at a time, " +
			"and these take no pods: " + first.Name,
	})
	s.provider.finish()
	for _, object := range []client.Object{a, b, first, second} {
		s.AwaitGone(object)
	}
	name, other := strings.TrimPrefix(first.Name, s.Namespace+"-"), strings.TrimPrefix(second.Name, s.Namespace+"-")
	want := []string{"PATCH nodes/" + name, "DELETE nodes/" + name, "PATCH nodes/" + other, "DELETE nodes/" + other}
	if got := s.writes.ofNodes(); !slices.Equal(got, want) {
		t.Errorf("writes of nodes: %q, want %q", got, want)
	}
}

// TestNodeOfAnotherMachine deletes a machine whose node no longer exists. Another host has joined under the name
// of that node: as another machine's node, or before a machine was linked to it.
func TestNodeOfAnotherMachine(t *testing.T) {
	for name, annotations := range map[string]string{"linked": `{"machine.openshift.io/machine":"other/b"}`,
		"not linked yet": `{}`} {
		t.Run(name, func(t *testing.T) { leaveNodeOfAnotherMachine(t, annotations) })
	}
}

func leaveNodeOfAnotherMachine(t *testing.T, annotations string) {
	s := newScenario(t)
	s.start(quick)
	node := s.addNode("n", nil)
	pod := s.addPod("web", node, nil)
	m := s.addMachine("a", node, machinev1beta1.LifecycleHooks{})
	s.MustPatchStatus(m, `{"status":{"nodeRef":{"uid":"before"}}}`)
	s.MustPatch(node, `{"metadata":{"annotations":%s}}`, annotations)
	s.MustDelete(m)
	s.AwaitGone(m)
	s.expectUntouched(node, pod)
}

// TestALongEventIsWritten has pods hold a drain whose names are longer together than the note of an event may be.
func TestALongEventIsWritten(t *testing.T) {
	s := newScenario(t)
	s.start(quick)
	node := s.addNode("n", nil)
	for i := range 5 {
		pod := s.NewPod(strings.Repeat("web-", 60)+string(rune('a'+i)), node)
		pod.Labels, pod.Finalizers, pod.Spec.TerminationGracePeriodSeconds = nil, []string{"example.org/keep"},
			new(int64)
		s.RunPod(pod)
		s.Cleanup(func() {
			_ = s.Patch(context.Background(), pod,
				client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		})
	}
	s.MustDelete(s.addMachine("a", node, machinev1beta1.LifecycleHooks{}))
	s.AwaitEvent("a", "DrainRequeued", "web-web-a has terminated; its finalizers hold it: example.org/keep")
}
