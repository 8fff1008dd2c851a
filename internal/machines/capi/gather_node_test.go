package capi_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Two Machines that took a Node from each other would write it without end, and the deletion of one would delete the
// other's. A Node whose Machine was deleted can be linked.
func TestOfTwoMachinesWithOneProviderIDTheFirstHasTheNode(t *testing.T) {
	s := newScene(t)
	node := s.addNode("m1")
	s.MustPatch(node,
		`{"metadata": {"annotations": {"cluster.x-k8s.io/cluster-namespace": %q, "cluster.x-k8s.io/machine": "absent"}}}`,
		s.Namespace)
	s.addInfrastructure("m1")
	first, second := s.machine("m1"), s.machine("m2")
	s.MustCreate(first)
	s.await("m1", func(m *clusterv1.Machine) bool { return m.Status.NodeRef.Name == node.Name })
	s.MustPatch(s.addInfrastructure("m2"), `{"spec": {"providerID": %q}}`, s.providerID("m1"))
	s.MustCreate(second)
	s.await("m2", func(m *clusterv1.Machine) bool {
		healthy := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineNodeHealthyCondition)
		return healthy != nil && healthy.Message == "the Node "+node.Name+" belongs to Machine "+s.Namespace+
			"/m1, and a Node has one Machine: delete one of both"
	})
	s.MustDelete(second)
	s.AwaitGone(second)
	s.expectUntouched(node)
	if owner := node.Annotations[clusterv1.MachineAnnotation]; owner != "m1" {
		t.Errorf("the Node belongs to Machine %q", owner)
	}
	s.MustDelete(first)
	s.AwaitGone(node)
}

// The Node of a Machine was deleted, and its host has registered again, under the same name, for another Machine.
func TestANodeOfTheSameNameThatIsAnothersIsLeftAlone(t *testing.T) {
	for key, owner := range map[string]string{clusterv1.MachineAnnotation: "m2",
		"machine.openshift.io/machine": "other/m2"} {
		t.Run(owner, func(t *testing.T) {
			s := newScene(t)
			m, node := s.runs(preDrain + "a")
			s.MustDelete(node)
			s.AwaitGone(node)
			again := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{
					Name: node.Name, Annotations: map[string]string{
						clusterv1.ClusterNamespaceAnnotation: s.Namespace,
						key:                                  owner,
					},
				},
				Spec: corev1.NodeSpec{ProviderID: s.providerID("m2")},
			}
			s.MustCreate(again)
			s.DeleteAfterwards(again)
			s.MustDelete(m)
			s.awaitDeleting("WaitingForPreDrainHook", preDrain+"a")
			s.removeHook(m, preDrain+"a")
			s.AwaitGone(m)
			s.expectUntouched(again)
		})
	}
}

// The host of a Machine was replaced, and the new one has joined under its name. No Machine is linked to it yet.
func TestAnotherHostOfTheNameOfANodeIsLeftAlone(t *testing.T) {
	for name, providerID := range map[string]string{"with a providerID": "m2", "without a providerID yet": ""} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			m, node := s.runs(preDrain + "a")
			again := s.replaceHost(node, providerID)
			pod := s.addPod(again, "web", nil)
			s.MustDelete(m)
			s.awaitDeleting("WaitingForPreDrainHook", preDrain+"a")
			s.removeHook(m, preDrain+"a")
			s.AwaitGone(m)
			s.expectUntouched(again, pod)
		})
	}
}

// The Node of a Machine was deleted, and its host has joined again.
func TestAHostThatHasJoinedAgainIsDrained(t *testing.T) {
	s := newScene(t)
	m, node := s.runs(preDrain + "a")
	again := s.replaceHost(node, "m1")
	pod := s.addPod(again, "web", nil)
	s.MustDelete(m)
	s.awaitDeleting("WaitingForPreDrainHook", preDrain+"a")
	s.removeHook(m, preDrain+"a")
	s.AwaitGone(m)
	s.AwaitGone(pod)
	s.AwaitGone(again)
}

// replaceHost has another Node take the place of one: that of another machine's host, or of one without a providerID.
func (s *scene) replaceHost(node *corev1.Node, owner string) *corev1.Node {
	s.Helper()
	s.MustDelete(node)
	s.AwaitGone(node)
	again := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	if owner != "" {
		again.Spec.ProviderID = s.providerID(owner)
	}
	s.MustCreate(again)
	s.DeleteAfterwards(again)
	return again
}

// A host has registered again, under another name, before its first Node was deleted.
func TestASecondNodeOfAProviderIDSkipsNoPhaseOfADeletion(t *testing.T) {
	s := newScene(t)
	m, node := s.runs(preDrain+"a", preTerminate+"x")
	s.addSecondNode(node)
	s.await("m1", func(m *clusterv1.Machine) bool {
		return meta.IsStatusConditionPresentAndEqual(m.Status.Conditions, "NodeHealthy", "Unknown")
	})
	s.MustDelete(m)
	s.awaitDeleting("WaitingForPreDrainHook", preDrain+"a")
	s.removeHook(m, preDrain+"a")
	s.awaitDeleting("WaitingForPreTerminateHook", "")
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil || !node.Spec.Unschedulable {
		t.Errorf("the Node is not drained: %v", err)
	}
	s.removeHook(m, preTerminate+"x")
	s.AwaitGone(m)
	s.AwaitGone(node)
}

// A user has to decide which one is the Machine's.
func TestTwoNodesOfAProviderIDHoldTheDeletionIfNoneIsLinked(t *testing.T) {
	s := newStoppedScene(t)
	node := s.addNode("m1")
	second := s.addSecondNode(node)
	s.addInfrastructure("m1")
	m := s.machine("m1")
	m.Finalizers = []string{clusterv1.MachineFinalizer}
	s.MustCreate(m)
	s.MustDelete(m)
	s.start()
	s.awaitDeleting("InternalError", "")
	s.expectInfrastructure()
	s.MustDelete(second)
	s.AwaitGone(m)
	s.AwaitGone(node)
}

// Another writer is faster when the Node of a terminating Machine is linked.
func TestAConflictOnTheNodeSkipsNoPhaseOfADeletion(t *testing.T) {
	s := newStoppedScene(t)
	node := s.addNode("m1")
	s.addInfrastructure("m1")
	m := s.machine("m1")
	m.Finalizers, m.Annotations = []string{clusterv1.MachineFinalizer}, map[string]string{preDrain + "a": "a"}
	s.MustCreate(m)
	s.MustDelete(m)
	s.overtakes.Store(1)
	s.start()
	s.awaitDeleting("WaitingForPreDrainHook", preDrain+"a")
	s.removeHook(m, preDrain+"a")
	s.AwaitGone(m)
	s.AwaitGone(node)
}

// addSecondNode creates another Node with the providerID of one.
func (s *scene) addSecondNode(node *corev1.Node) *corev1.Node {
	s.Helper()
	second := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name + "-again"},
		Spec:       corev1.NodeSpec{ProviderID: node.Spec.ProviderID},
	}
	s.MustCreate(second)
	s.DeleteAfterwards(second)
	return second
}
