package capi_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Two Machines that took a Node from each other would write it without end, and the deletion of one would delete the other's.
// A Node whose Machine is gone can be taken.
func TestOfTwoMachinesWithOneProviderIDTheFirstHasTheNode(t *testing.T) {
	s := newScene(t)
	node := s.addNode("m1")
	s.change(node, `{"metadata": {"annotations": {"cluster.x-k8s.io/cluster-namespace": "`+s.namespace+`", "cluster.x-k8s.io/machine": "gone"}}}`)
	s.addInfrastructure("m1")
	first, second := s.machine("m1"), s.machine("m2")
	s.create(first)
	s.await("m1", func(m *clusterv1.Machine) bool { return m.Status.NodeRef.Name == node.Name })
	s.change(s.addInfrastructure("m2"), `{"spec": {"providerID": "`+s.providerID("m1")+`"}}`)
	s.create(second)
	s.await("m2", func(m *clusterv1.Machine) bool {
		healthy := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineNodeHealthyCondition)
		return healthy != nil && healthy.Message == "the Node "+node.Name+" belongs to Machine "+s.namespace+"/m1, and a Node has one Machine: delete one of both"
	})
	s.delete(second)
	s.awaitGone(second)
	s.expectUntouched(node)
	if owner := node.Annotations[clusterv1.MachineAnnotation]; owner != "m1" {
		t.Errorf("the Node belongs to Machine %q", owner)
	}
	s.delete(first)
	s.awaitGone(node)
}
