package capi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

func TestAMachineComesTogetherWithItsInfrastructureAndItsNode(t *testing.T) {
	s := newScene(t)
	m := s.machine("m1")
	m.Labels = map[string]string{
		"node-role.kubernetes.io/worker": "", "zone.node-restriction.kubernetes.io/rack": "7",
		"node.cluster.x-k8s.io/pool": "blue",
		"app":                        "other",
	}
	m.Annotations = map[string]string{"node.cluster.x-k8s.io/note": "n", "other": "not for the node"}
	s.MustCreate(m)
	s.await("m1", func(m *clusterv1.Machine) bool {
		ready := meta.FindStatusCondition(m.Status.Conditions, "InfrastructureReady")
		return ready != nil && ready.Reason == "ObjectDoesNotExist" && ready.Message == "TestMachine does not exist" &&
			m.Status.Phase == "Pending"
	})
	s.addInfrastructure("m1")
	s.await("m1", func(m *clusterv1.Machine) bool { return m.Status.Phase == "Provisioned" })
	node := s.addNode("m1")
	seen := s.await("m1", func(m *clusterv1.Machine) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, "Available")
	})
	got := []string{
		seen.Status.Phase, seen.Status.NodeRef.Name, seen.Status.FailureDomain, seen.Labels[clusterv1.ClusterNameLabel],
	}
	expected := []string{"Running", node.Name, "rack-7", "c"}
	if diff := cmp.Diff(expected, got); diff != "" || len(seen.Status.Addresses) != 1 {
		t.Errorf("phase, node, failure domain and cluster of the Machine (-want +got):\n%s; addresses %v, want one",
			diff, seen.Status.Addresses)
	}
	owners := seen.OwnerReferences
	if len(owners) != 1 || owners[0].Kind != "Cluster" || owners[0].UID != s.cluster.UID {
		t.Errorf("owners of the Machine: got %+v, want the Cluster with UID %s", owners, s.cluster.UID)
	}
	infrastructure := s.infrastructure()
	if owner := metav1.GetControllerOf(infrastructure); owner == nil || owner.UID != seen.UID ||
		infrastructure.GetLabels()[clusterv1.ClusterNameLabel] != "c" {
		t.Errorf("metadata of the infrastructure: got %v, want the Machine with UID %s as controller, and the label of "+
			"cluster c", infrastructure.Object["metadata"], seen.UID)
	}
	want := map[string]string{
		"node-role.kubernetes.io/worker":           "",
		"zone.node-restriction.kubernetes.io/rack": "7",
		"node.cluster.x-k8s.io/pool":               "blue",
	}
	s.expectNode(node, want, map[string]string{
		"node.cluster.x-k8s.io/note": "n", clusterv1.MachineAnnotation: "m1", clusterv1.ClusterNameAnnotation: "c",
		clusterv1.ClusterNamespaceAnnotation:       s.Namespace,
		clusterv1.AnnotationsFromMachineAnnotation: "node.cluster.x-k8s.io/note",
		clusterv1.TaintsFromMachineAnnotation:      "",
	})
	s.MustPatch(node, `{"metadata": {"labels": {"node-role.kubernetes.io/kept": ""}}}`)
	s.MustPatch(seen,
		`{"metadata": {"labels": {"node.cluster.x-k8s.io/pool": null}, "annotations": {"node.cluster.x-k8s.io/note": null}}}`)
	delete(want, "node.cluster.x-k8s.io/pool")
	want["node-role.kubernetes.io/kept"] = ""
	s.expectNode(node, want, map[string]string{
		clusterv1.MachineAnnotation: "m1", clusterv1.ClusterNameAnnotation: "c",
		clusterv1.ClusterNamespaceAnnotation:       s.Namespace,
		clusterv1.AnnotationsFromMachineAnnotation: "", clusterv1.TaintsFromMachineAnnotation: "",
	})
}

// TestAMachineIsLinkedBeforeItIsAvailable has others change the Node whenever the controller is about to.
func TestAMachineIsLinkedBeforeItIsAvailable(t *testing.T) {
	s := newScene(t)
	s.overtakes.Store(5)
	s.MustCreate(s.machine("m1"))
	s.addInfrastructure("m1")
	node := s.addNode("m1")
	seen := s.await("m1", func(m *clusterv1.Machine) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, "Available")
	})
	if seen.Status.NodeRef.Name != node.Name || seen.Status.Phase != "Running" || s.overtakes.Load() > 0 {
		t.Errorf("available with node %q in phase %s and %d overtakes left, want node %q in phase Running and none left",
			seen.Status.NodeRef.Name, seen.Status.Phase, s.overtakes.Load(), node.Name)
	}
}

func TestTaintsReachTheNode(t *testing.T) {
	s := newScene(t)
	m := s.machine("m1")
	m.Spec.Taints = []clusterv1.MachineTaint{
		{
			Key:         "gpu",
			Value:       "7",
			Effect:      corev1.TaintEffectNoSchedule,
			Propagation: clusterv1.MachineTaintPropagationAlways,
		},
		{
			Key:         "warm-up",
			Effect:      corev1.TaintEffectPreferNoSchedule,
			Propagation: clusterv1.MachineTaintPropagationOnInitialization,
		},
	}
	m, node := s.run(m)
	s.expectTaints(node, "gpu=7:NoSchedule", "warm-up:PreferNoSchedule")
	s.MustPatch(node, `{"spec": {"taints": [{"key": "test", "effect": "NoSchedule"}]}}`)
	s.expectTaints(node, "gpu=7:NoSchedule")
	s.MustPatch(m, `{"spec": {"taints": null}}`)
	s.expectTaints(node)
}

// expectTaints waits until a Node has these taints, and its own one.
func (s *scene) expectTaints(node *corev1.Node, want ...string) {
	s.Helper()
	want = append([]string{"test:NoSchedule"}, want...)
	machinetest.Await(s, s, node, client.ObjectKeyFromObject(node), func(n *corev1.Node) bool {
		var got []string
		for _, taint := range n.Spec.Taints {
			got = append(got, taint.ToString())
		}
		return slices.Equal(want, got)
	})
}

// expectNode waits until a Node has the labels and annotations that are its Machine's.
func (s *scene) expectNode(node *corev1.Node, labels, annotations map[string]string) {
	s.Helper()
	ours := func(all map[string]string) map[string]string {
		some := map[string]string{}
		for key, value := range all {
			if strings.Contains(key, "x-k8s.io/") || strings.Contains(key, "node-r") {
				some[key] = value
			}
		}
		delete(some, clusterv1.LabelsFromMachineAnnotation)
		return some
	}
	machinetest.Await(s, s, node, client.ObjectKeyFromObject(node), func(n *corev1.Node) bool {
		return cmp.Equal(labels, ours(n.Labels)) && cmp.Equal(annotations, ours(n.Annotations))
	})
}

func TestAPausedMachineIsLeftAlone(t *testing.T) {
	s := newScene(t)
	m, node := s.runs()
	s.MustPatch(m, `{"metadata": {"annotations": {"`+clusterv1.PausedAnnotation+`": ""}}}`)
	s.await("m1", func(m *clusterv1.Machine) bool {
		paused := meta.FindStatusCondition(m.Status.Conditions, "Paused")
		return paused.Status == metav1.ConditionTrue &&
			paused.Message == "Machine has the cluster.x-k8s.io/paused annotation"
	})
	s.MustDelete(m)
	// Another Machine's deletion is complete: this one's would have begun.
	s.MustDelete(s.controlPlane)
	s.AwaitGone(s.controlPlane)
	s.expectUntouched(node)
	s.expectInfrastructure()
	s.MustPatch(m, `{"metadata": {"annotations": {"`+clusterv1.PausedAnnotation+`": null}}}`)
	s.AwaitGone(m)
}

func TestANodeThatHasAMachineOfOpenShiftIsNotTaken(t *testing.T) {
	s := newScene(t)
	node := s.addNode("m1")
	s.MustPatch(node, `{"metadata": {"annotations": {"machine.openshift.io/machine": "shop/web-4"}}}`)
	s.addInfrastructure("m1")
	m := s.machine("m1")
	s.MustCreate(m)
	seen := s.await("m1", func(m *clusterv1.Machine) bool {
		healthy := meta.FindStatusCondition(m.Status.Conditions, "NodeHealthy")
		return healthy != nil && strings.Contains(healthy.Message,
			"belongs to Machine shop/web-4 of machine.openshift.io, and a Node has one Machine")
	})
	if seen.Status.NodeRef.Name != "" {
		t.Errorf("status.nodeRef: got %+v, want none", seen.Status.NodeRef)
	}
	s.MustDelete(m)
	s.AwaitGone(m)
	s.expectUntouched(node)
}
