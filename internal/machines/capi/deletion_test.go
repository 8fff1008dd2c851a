package capi_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

func TestB1HooksHoldTheDeletionInTheirOrder(t *testing.T) {
	s := newScene(t)
	config := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infra.example.com/v1", "kind": "TestConfig",
		"status": map[string]any{"initialization": map[string]any{"dataSecretCreated": true}, "dataSecretName": "made"},
	}}
	config.SetNamespace(s.Namespace)
	config.SetName("m1")
	config.SetFinalizers([]string{held})
	s.MustCreate(config)
	m := s.machine("m1")
	m.Spec.Bootstrap = clusterv1.Bootstrap{ConfigRef: s.ref("TestConfig", "m1")}
	m.Annotations = map[string]string{preDrain + "b": "b", preDrain + "a": "a", preTerminate + "x": "x"}
	m, node := s.run(m, held)
	if name := ptr.Deref(m.Spec.Bootstrap.DataSecretName, ""); name != "made" ||
		m.Spec.ProviderID != s.providerID("m1") {
		t.Errorf("got Secret %q and providerID %q, want made and %q", name, m.Spec.ProviderID, s.providerID("m1"))
	}
	web := s.addPod(node, "web", func(p *corev1.Pod) { p.Finalizers = []string{held} })

	s.MustDelete(m)
	seen := s.awaitDeleting("WaitingForPreDrainHook", "(hooks: "+preDrain+"a,"+preDrain+"b)")
	if seen.Status.Deletion == nil || seen.Status.Deletion.WaitForPreDrainHookStartTime.IsZero() ||
		seen.Status.Phase != "Deleting" {
		t.Errorf("status: got %+v, want phase Deleting, and the start of the wait for pre-drain hooks", seen.Status)
	}
	ready := meta.FindStatusCondition(seen.Status.Conditions, "Ready")
	if ready.Message != "* Deleting: Machine deletion in progress, stage: WaitingForPreDrainHook" ||
		ready.Reason != "NotReady" {
		t.Errorf("Ready: got %+v, want NotReady, in stage WaitingForPreDrainHook", ready)
	}
	s.expectUntouched(node)
	s.removeHook(m, preDrain+"a")
	s.awaitDeleting("WaitingForPreDrainHook", "(hooks: "+preDrain+"b)")
	s.expectUntouched(node)
	s.expectInfrastructure()

	s.removeHook(m, preDrain+"b")
	s.awaitDeleting("DrainingNode",
		"\n* Pod "+s.Namespace+"/web: deletionTimestamp set, but still not removed from the Node")
	s.MustPatch(web, `{"metadata": {"finalizers": null}}`)
	seen = s.awaitDeleting("WaitingForPreTerminateHook", "(hooks: "+preTerminate+"x)")
	times := seen.Status.Deletion
	if times.NodeDrainStartTime.IsZero() || times.WaitForNodeVolumeDetachStartTime.IsZero() ||
		times.WaitForPreTerminateHookStartTime.IsZero() {
		t.Errorf("times: got %+v, want those of the drain, the volumes and the pre-terminate hooks", times)
	}
	s.expectInfrastructure()

	s.removeHook(m, preTerminate+"x")
	s.awaitDeleting("WaitingForInfrastructureDeletion", "Waiting for TestMachine to be deleted")
	if s.object("TestConfig", "m1").GetDeletionTimestamp() != nil {
		t.Error("the bootstrap config is deleted before the infrastructure")
	}
	s.MustPatch(s.infrastructure(), `{"metadata": {"finalizers": null}}`)
	s.awaitDeleting("WaitingForBootstrapDeletion", "Waiting for TestConfig to be deleted")
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		t.Errorf("get the Node before the bootstrap config is deleted: got %v, want no error", err)
	}
	s.MustPatch(s.object("TestConfig", "m1"), `{"metadata": {"finalizers": null}}`)
	s.AwaitGone(m)
	s.AwaitGone(node)
}

func TestB1ALatePreDrainHookHoldsAndTheDrainIsNotRepeated(t *testing.T) {
	s := newScene(t)
	m, node := s.runs(preTerminate + "x")
	s.MustDelete(m)
	s.awaitDeleting("WaitingForPreTerminateHook", "")
	pod := s.addPod(node, "back", nil)
	s.MustPatch(m, `{"metadata": {"annotations": {"`+preDrain+`late": ""}}}`)
	s.awaitDeleting("WaitingForPreDrainHook", preDrain+"late")
	s.removeHook(m, preDrain+"late")
	s.awaitDeleting("WaitingForPreTerminateHook", "")
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.DeletionTimestamp != nil {
		t.Errorf("pod after the drain: got deletion time %v, error %v; want neither", pod.DeletionTimestamp, err)
	}
	s.removeHook(m, preTerminate+"x")
	s.AwaitGone(m)
}

func TestB2WithTheClusterTheNodeIsLeftAlone(t *testing.T) {
	s := newScene(t)
	s.MustPatch(s.cluster, `{"metadata": {"finalizers": ["`+held+`"]}}`)
	m, node := s.runs(preDrain+"a", preTerminate+"x")
	s.MustDelete(s.cluster)
	s.MustDelete(m)
	s.awaitDeleting("WaitingForPreTerminateHook", "")
	s.expectUntouched(node)
	s.expectInfrastructure()
	s.removeHook(m, preTerminate+"x")
	s.AwaitGone(m)
	s.expectUntouched(node)
	s.MustPatch(s.cluster, `{"metadata": {"finalizers": null}}`)
}

// Nothing holds a Cluster: it is removed before its Machines, also before Machines that it does not own yet.
func TestB2AfterTheClusterTheNodeIsLeftAlone(t *testing.T) {
	s := newScene(t)
	m, node := s.runs(preDrain+"a", preTerminate+"x")
	s.MustDelete(s.cluster)
	s.AwaitGone(s.cluster)
	late := s.machine("late")
	late.Finalizers = []string{clusterv1.MachineFinalizer}
	s.MustCreate(late)
	s.MustDelete(late)
	s.AwaitGone(late)
	s.MustDelete(m)
	s.awaitDeleting("WaitingForPreTerminateHook", "")
	s.AwaitEvent("m1", "NodeKept", "the Node is neither drained nor deleted: the Cluster does not exist")
	s.expectInfrastructure()
	s.removeHook(m, preTerminate+"x")
	s.AwaitGone(m)
	s.expectUntouched(node)
}

func TestB2WithTheControlPlaneTheNodeIsLeftAlone(t *testing.T) {
	s := newScene(t)
	plane := s.addInfrastructure("plane", held) // any object is fit to be one
	s.MustPatch(plane, `{"status": {"externalManagedControlPlane": true}}`)
	s.MustPatch(s.cluster,
		`{"spec": {"controlPlaneRef": {"apiGroup": "infra.example.com", "kind": "TestMachine", "name": "plane"}}}`)
	s.MustDelete(s.controlPlane)
	s.AwaitGone(s.controlPlane)
	m := s.machine("m1")
	m.Annotations = map[string]string{preDrain + "a": "a"}
	m, node := s.run(m, held)
	s.MustDelete(m)
	s.awaitDeleting("WaitingForPreDrainHook", preDrain+"a") // though there are no Machines of the control plane
	s.MustDelete(plane)
	s.MustPatch(m, `{"metadata": {"labels": {"nudge": "1"}}}`)
	s.AwaitEvent("m1", "NodeKept", "the Node is neither drained nor deleted: the control plane is being deleted")
	s.MustPatch(s.infrastructure(), `{"metadata": {"finalizers": null}}`)
	s.AwaitGone(m)
	s.expectUntouched(node)
	s.MustPatch(plane, `{"metadata": {"finalizers": null}}`)
}

func TestB3TheLastMachineOfTheControlPlane(t *testing.T) {
	s := newScene(t)
	m, node := s.runs(preDrain + "a")
	s.MustDelete(s.controlPlane)
	s.AwaitGone(s.controlPlane)
	s.MustDelete(m)
	s.AwaitGone(m)
	s.expectUntouched(node)
}

func TestB3WithoutANode(t *testing.T) {
	s := newScene(t)
	m := s.machine("m1")
	m.Annotations = map[string]string{preDrain + "a": "a", preTerminate + "x": "x"}
	s.addInfrastructure("m1")
	s.MustCreate(m)
	seen := s.await("m1", func(m *clusterv1.Machine) bool { return m.Status.Phase == "Provisioned" })
	want := "Waiting for a Node with spec.providerID " + s.providerID("m1") + " to exist"
	if healthy := meta.FindStatusCondition(seen.Status.Conditions, "NodeHealthy"); healthy.Message != want ||
		healthy.Reason != "InspectionFailed" {
		t.Errorf("NodeHealthy: got %+v, want InspectionFailed: %s", healthy, want)
	}
	s.MustDelete(m)
	s.awaitDeleting("WaitingForPreTerminateHook", "")
	s.removeHook(m, preTerminate+"x")
	s.AwaitGone(m)
}

func TestB4ADrainThatTakesTooLongIsGivenUp(t *testing.T) {
	s := newScene(t)
	m, node := s.runs(preTerminate + "x")
	s.addPod(node, "db", nil)
	s.AddBudget("db", "db")
	s.MustDelete(m)
	s.awaitDeleting("DrainingNode",
		"\n* Pod "+s.Namespace+"/db: cannot evict pod as it would violate the pod's disruption budget. "+
			"The disruption budget db needs 1 healthy pods and has 1 currently")
	s.expectInfrastructure()
	s.AwaitLifecycle(node, corev1.NodeDrainInProgress, corev1.NodeMaintenancePlanned)
	s.MustPatch(m, `{"spec": {"deletion": {"nodeDrainTimeoutSeconds": 1}}}`)
	s.awaitDeleting("WaitingForPreTerminateHook", "")
	s.AwaitLifecycle(node, corev1.NodeMaintenancePlanned)
	s.removeHook(m, preTerminate+"x")
	s.AwaitGone(m)
	if err := s.Get(t.Context(), s.Key("db"), &corev1.Pod{}); err != nil {
		t.Errorf("get the pod that its budget holds: got %v, want no error", err)
	}
}

// TestAKeptNodeHasNoConditionsOfTheDeletion deletes a Machine, and then its Cluster, so that the Node stays.
func TestAKeptNodeHasNoConditionsOfTheDeletion(t *testing.T) {
	s := newScene(t)
	m, node := s.runs(preDrain+"a", preTerminate+"x")
	s.MustDelete(m)
	s.AwaitLifecycle(node, corev1.NodeMaintenancePlanned)
	s.MustDelete(s.cluster)
	s.removeHook(m, preDrain+"a")
	s.AwaitLifecycle(node)
	s.removeHook(m, preTerminate+"x")
	s.AwaitGone(m)
	s.expectUntouched(node)
}

// TestADrainContinuesWithoutConditions has each write of a Node's conditions fail.
func TestADrainContinuesWithoutConditions(t *testing.T) {
	s := newScene(t)
	s.keepsStatus.Store(true)
	u := startUpdates(s, map[string]string{"drain": "true"})
	u.answers(done)
	u.trigger(2)
	u.awaitUpdated()
	u.awaitUncordoned()
	s.MustDelete(u.m)
	s.AwaitGone(u.m)
}

func TestB6AMachineThatIsExcludedFromDrainingIsHeldByItsHooks(t *testing.T) {
	s := newScene(t)
	m, node := s.runs(preDrain+"a", preTerminate+"x", clusterv1.ExcludeNodeDrainingAnnotation)
	pod := s.addPod(node, "web", nil)
	s.MustDelete(m)
	s.awaitDeleting("WaitingForPreDrainHook", preDrain+"a")
	s.removeHook(m, preDrain+"a")
	s.awaitDeleting("WaitingForPreTerminateHook", "")
	s.expectUntouched(node)
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.DeletionTimestamp != nil {
		t.Errorf("pod: got deletion time %v, error %v; want neither", pod.DeletionTimestamp, err)
	}
	s.removeHook(m, preTerminate+"x")
	s.AwaitGone(m)
}

func TestB7ANodeThatCanNotBeDeletedIsGivenUpInTime(t *testing.T) {
	s := newScene(t)
	s.keepsNodes.Store(true)
	m := s.machine("m1")
	m.Spec.Deletion.NodeDeletionTimeoutSeconds = ptr.To(int32(0))
	m, node := s.run(m)
	s.MustDelete(m)
	s.awaitDeleting("DeletingNode", "Error deleting Node, please check controller logs for errors")
	s.AwaitEvent("m1", "FailedDeleteNode", "no Node is deleted")
	s.MustPatch(m, `{"spec": {"deletion": {"nodeDeletionTimeoutSeconds": 1}}}`)
	s.AwaitGone(m)
	machinetest.Await(s, s, node, client.ObjectKeyFromObject(node), func(n *corev1.Node) bool {
		return n.DeletionTimestamp == nil
	})
}

// After a restart in the middle of a drain, the controller checks the pods again, and the time of the drain continues.
func TestB4ARestartDoesNotBeginADrainAnew(t *testing.T) {
	s := newStoppedScene(t)
	stop := s.start()
	m, node := s.runs()
	s.addPod(node, "db", nil)
	s.AddBudget("db", "db")
	s.MustDelete(m)
	start := s.awaitDeleting("DrainingNode", "/db: cannot evict pod").Status.Deletion.NodeDrainStartTime
	stop()
	s.ahead.Store(int64(time.Hour))
	s.start()
	s.MustPatch(m, `{"spec": {"deletion": {"nodeDrainTimeoutSeconds": 7200}}}`)
	m = s.awaitDeleting("DrainingNode", "/db: cannot evict pod")
	if !m.Status.Deletion.NodeDrainStartTime.Equal(&start) {
		t.Errorf("start of the drain: got %s, want %s", m.Status.Deletion.NodeDrainStartTime, start)
	}
	s.MustPatch(m, `{"spec": {"deletion": {"nodeDrainTimeoutSeconds": 3000}}}`) // which is over by its first start
	s.AwaitGone(m)
}

func TestB4VolumesThatStayAttachedAreGivenUp(t *testing.T) {
	s := newScene(t)
	m, node := s.runs()
	attachment := s.addVolume(node, "data")
	s.MustDelete(m)
	s.awaitDeleting("WaitingForVolumeDetach", "\n* PersistentVolumeClaims: "+s.Namespace+"/data")
	s.AwaitLifecycle(node, corev1.NodeDrained, corev1.NodeMaintenancePlanned)
	s.expectInfrastructure()
	s.MustPatch(m, `{"spec": {"deletion": {"nodeVolumeDetachTimeoutSeconds": 1}}}`)
	s.AwaitGone(m)
	s.MustDelete(attachment)
}

// Unlike in the other API, a late pre-terminate hook holds the deletion until the Machine is removed.
func TestB1ALatePreTerminateHookHoldsWhileTheInfrastructureGoes(t *testing.T) {
	s := newScene(t)
	m, node := s.run(s.machine("m1"), held)
	s.MustDelete(m)
	s.awaitDeleting("WaitingForInfrastructureDeletion", "Waiting for TestMachine to be deleted")
	s.MustPatch(m, `{"metadata": {"annotations": {"`+preTerminate+`late": ""}}}`)
	s.awaitDeleting("WaitingForPreTerminateHook", preTerminate+"late")
	infrastructure := s.infrastructure()
	s.MustPatch(infrastructure, `{"metadata": {"finalizers": null}}`)
	s.AwaitGone(infrastructure)
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		t.Errorf("get the Node beside a hook: got %v, want no error", err)
	}
	s.removeHook(m, preTerminate+"late")
	s.AwaitGone(m)
	s.AwaitGone(node)
}
